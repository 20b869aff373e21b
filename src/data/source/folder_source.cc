#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>

#include "data/source/format_sources.h"
#include "lockstep/base/counted.h"
#include "lockstep/base/log.h"
#include "lockstep/base/printable.h"
#include "lockstep/data/source/formats.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

// Returns ".jpg" for "a/b.JPG", and nothing without a dot. Only ASCII is converted, because the encoding is unknown.
std::string lower_extension(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  std::string extension(name.substr(dot));
  for (char& c : extension) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return extension;
}

bool is_image_name(std::string_view name) {
  constexpr std::array<std::string_view, 4> kExtensions = {".jpg", ".jpeg", ".jpe", ".png"};
  return !name.starts_with('.') && std::ranges::count(kExtensions, lower_extension(name)) > 0;
}

// Counts ignored entries by kind.
class Ignored {
 public:
  void add(const std::string& directory, const std::string& name) {
    const std::string extension = lower_extension(name);
    if (name.starts_with('.')) {
      ++counts_["hidden"];
    } else if (!extension.empty()) {
      ++counts_[printable(extension)];
    } else {
      ++counts_[is_directory(directory + "/" + name) ? "directories inside classes" : "no extension"];
    }
  }
  void log(const std::string& root) const {
    std::string list;
    for (const auto& [kind, count] : counts_) list += fmt::format("{}{} {}", list.empty() ? "" : ", ", kind, count);
    if (!list.empty()) {
      log_info("{}: ignored what is no class directory and no image: {}", printable(root, PATH_MAX), list);
    }
  }
  int64_t count(std::string_view kind) const {
    const auto found = counts_.find(kind);
    return found == counts_.end() ? 0 : found->second;
  }

 private:
  std::map<std::string, int64_t, std::less<>> counts_;
};

// "a/b/" -> "b"
std::string_view last_part(std::string_view path) {
  if (path.ends_with('/')) path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);
}

// Returns the name of the directory of an image.
std::string_view class_of(std::string_view image) { return last_part(image.substr(0, image.rfind('/'))); }

struct Listing {
  std::vector<std::string> paths;
  std::map<std::string, int64_t, std::less<>> images_of_class;
  std::string deeper;  // in a class without images: a directory with images
};

// Throws for a link without a target, because it may be a class, without which every later class would get another
// label.
void refuse_dangling_link(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) return;
  const int error = errno;
  struct stat link = {};
  if (::lstat(path.c_str(), &link) != 0 || !S_ISLNK(link.st_mode)) return;
  fail(
      ExitCode::data,
      "{}: is a link that cannot be followed ({}): if it is a class, every later class would get another label without "
      "it; restore what it points to, or remove the link",
      printable(path, PATH_MAX), errno_text(error));
}

// Returns "n01440764/images" for a class whose images are in a directory of their own, and nothing for any other.
std::string deeper_images(const std::string& root, const std::string& name) {
  const auto entries = [](const std::string& directory) {
    try {
      return list_directory(directory, ExitCode::data);
    } catch (const Error&) {
      return std::vector<std::string>();  // it would only have been a hint
    }
  };
  for (const std::string& inner : entries(root + "/" + name)) {
    const std::string directory = root + "/" + name + "/" + inner;
    if (inner.starts_with('.') || !is_directory(directory)) continue;
    if (std::ranges::any_of(entries(directory), [](const std::string& file) { return is_image_name(file); })) {
      return name + "/" + inner;
    }
  }
  return {};
}

struct RootCount {
  size_t classes = 0;
  size_t loose_images = 0;
};

[[noreturn]] void fail_without_classes(const std::string& root, const RootCount& count, const Ignored& ignored) {
  const std::string name = printable(root, PATH_MAX);
  if (count.loose_images > 0) {
    fail(ExitCode::data, "{}: holds {} but no class directories; data of format \"folder\" are <root>/<class>/<image>",
         name, counted(count.loose_images, "image"));
  }
  if (const int64_t archives = ignored.count(".tar"); archives > 0) {
    fail(ExitCode::data, "{}: holds {} but no class directories: unpack each into a directory of its name", name,
         counted(archives, ".tar file"));
  }
  fail(ExitCode::data, "{}: holds no class directory; data of format \"folder\" are <root>/<class>/<image>", name);
}

// Adds the class directories and images of one root to `listing`.
void list_root(std::string root, Listing& listing) {
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  Ignored ignored;
  RootCount count;
  for (const std::string& name : list_directory(root, ExitCode::data)) {
    const std::string directory = root + "/" + name;
    if (name.starts_with('.') || !is_directory(directory)) {
      if (!name.starts_with('.')) refuse_dangling_link(directory);
      count.loose_images += is_image_name(name) ? 1 : 0;
      ignored.add(root, name);
      continue;
    }
    ++count.classes;
    listing.paths.push_back(directory + "/");
    int64_t& images = listing.images_of_class[name];
    for (const std::string& file : list_directory(directory, ExitCode::data)) {
      if (!is_image_name(file)) {
        ignored.add(directory, file);
        continue;
      }
      listing.paths.push_back(directory + "/" + file);
      ++images;
    }
    if (images == 0 && listing.deeper.empty()) {
      if (const std::string deeper = deeper_images(root, name); !deeper.empty()) listing.deeper = root + "/" + deeper;
    }
  }
  if (count.classes == 0) fail_without_classes(root, count, ignored);
  ignored.log(root);
}

// Adds the images of a directory, and of those inside it, in the order of their paths.
void list_below(const std::string& directory, std::vector<std::string>& images) {
  using Iterator = std::filesystem::recursive_directory_iterator;
  std::error_code error;
  std::vector<std::string> found;
  for (Iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code none;
    if (entry->is_directory(none)) {
      if (name.starts_with('.')) entry.disable_recursion_pending();
    } else if (is_image_name(name)) {
      found.push_back(entry->path().string());
    }
  }
  const std::string where = printable(directory, PATH_MAX);
  if (error) fail(ExitCode::data, "{}: cannot be listed: {}", where, error.message());
  if (found.empty()) fail(ExitCode::data, "{}: a directory without an image (.jpg, .jpeg, .jpe, .png)", where);
  std::ranges::sort(found);
  images.insert(images.end(), found.begin(), found.end());
}

// Warns once about all classes without an image, because there may be hundreds.
void warn_of_empty_classes(const Listing& listing) {
  constexpr size_t kNamed = 5;
  std::vector<std::string> empty;
  for (const auto& [name, images] : listing.images_of_class) {
    if (images == 0) empty.push_back(printable(name));
  }
  if (empty.empty()) return;
  const size_t more = empty.size() - std::min(empty.size(), kNamed);
  empty.resize(empty.size() - more);
  log_warning("{} of {} class directories have no image; they keep their numbers: {}{}{}", empty.size() + more,
              listing.images_of_class.size(), fmt::join(empty, ", "), more > 0 ? fmt::format(" and {} more", more) : "",
              listing.deeper.empty() ? ""
                                     : fmt::format("; images lie one directory deeper in {}, where they are not read",
                                                   printable(listing.deeper, PATH_MAX)));
}

// Image files, each of which is a sample.
class ImageFiles : public DataSource {
 public:
  // All labels are 0.
  explicit ImageFiles(const std::vector<std::string>& paths) : DataSource(LabelRule{}) {
    for (const std::string& path : paths) images_.push_back({.path = path});
  }

  int64_t size() const override { return std::ssize(images_); }
  std::string where(int64_t index) const override { return printable(images_[index].path, PATH_MAX); }
  std::string description() const override { return counted(images_.size(), "image"); }

 protected:
  struct Entry {
    std::string path;
    int64_t label = 0;
  };

  explicit ImageFiles(LabelRule labels) : DataSource(labels) {}

  std::vector<Entry> images_;

 private:
  void fetch(int64_t index, Sample& sample) const override {
    require(index >= 0 && index < size(), "image {} of {}", index, size());
    const Entry& entry = images_[index];
    try {
      read_image(entry.path, sample.buffer);
    } catch (const BadRecord&) {
      throw;
    } catch (const Error& error) {
      if (can_be_read(entry.path)) throw;
      std::string_view reason = error.what();  // read() adds the path
      if (reason.starts_with(entry.path + ": ")) reason.remove_prefix(entry.path.size() + 2);
      throw BadRecord(printable(reason, PATH_MAX), error.where());
    }
    sample.kind = Sample::Kind::encoded;
    sample.bytes = sample.buffer;
    sample.label = entry.label;
  }

  static void read_image(const std::string& path, std::vector<std::byte>& to) {
    const FileDescriptor file = open_regular_file(path, ExitCode::data);
    const int64_t bytes = file_size(file, path, ExitCode::data);
    if (bytes > kMaxRecordBytes) {
      throw BadRecord(fmt::format("it has {} bytes; a picture has at most {}", bytes, kMaxRecordBytes));
    }
    to.resize(static_cast<size_t>(bytes));
    pread_all(file, to, {.path = path, .offset = 0, .blame = ExitCode::data});
  }

  // A file that is missing, not a regular file, or not readable for us is a bad record. An error of the disk ends the
  // run.
  static bool can_be_read(const std::string& path) {
    struct stat status = {};
    return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), R_OK) == 0;
  }
};

class FolderSource final : public ImageFiles {
 public:
  explicit FolderSource(const DataSourceOptions& options) : ImageFiles(options.labels) {
    for (const std::string& path : options.files) {
      if (!path.ends_with('/')) continue;
      if (!is_directory(path))
        fail(ExitCode::data, "{}: this rank cannot see the directory", printable(path, PATH_MAX));
      classes_.emplace_back(last_part(path));
    }
    std::ranges::sort(classes_);
    classes_.erase(std::unique(classes_.begin(), classes_.end()), classes_.end());
    const int64_t allowed = options.labels.classes;
    if (allowed > 0 && std::ssize(classes_) + options.labels.offset > allowed) {
      fail(ExitCode::data, "{}: {} class directories (label_offset {}), but model.classes is {}",
           printable(options.files.front(), PATH_MAX), classes_.size(), options.labels.offset, allowed);
    }
    for (const std::string& path : options.files) {
      if (path.ends_with('/')) continue;
      const auto found = std::ranges::lower_bound(classes_, class_of(path));
      require(found != classes_.end() && *found == class_of(path), "{} is listed without its directory", path);
      images_.push_back({.path = path, .label = found - classes_.begin()});
    }
  }

  void follow_classes(const std::vector<std::string>& names) override {
    if (names.empty() || names == classes_) return;
    std::vector<int64_t> numbers;
    for (const std::string& name : classes_) {
      const auto found = std::ranges::find(names, name);
      if (found == names.end()) {
        fail(ExitCode::data,
             "class directory '{}' is not among the {} classes of the other data set: its images would have no label "
             "that the model was trained on; remove it, or give both the same class directories",
             printable(name), names.size());
      }
      numbers.push_back(found - names.begin());
    }
    if (log_rank() == 0) {
      const auto [smallest, largest] = std::ranges::minmax(numbers);
      log_warning(
          "{}: images of {} of the {} classes only; its labels become those of the other data set's classes, {} to {}",
          description(), classes_.size(), names.size(), smallest, largest);
    }
    for (Entry& image : images_) image.label = numbers[image.label];
    classes_ = names;
  }

  std::string description() const override {
    return fmt::format("folder: {} in {} class{}", counted(images_.size(), "image"), classes_.size(),
                       classes_.size() == 1 ? "" : "es");
  }
  std::vector<std::string> class_names() const override { return classes_; }

 private:
  std::vector<std::string> classes_;
};

}  // namespace

bool is_directory(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::vector<std::string> list_image_folders(const std::vector<std::string>& roots) {
  Listing listing;
  for (const std::string& root : roots) list_root(root, listing);
  int64_t images = 0;
  for (const auto& [name, count] : listing.images_of_class) images += count;
  const std::string where = printable(fmt::format("{}", fmt::join(roots, ", ")), PATH_MAX);
  if (images == 0 && !listing.deeper.empty()) {
    fail(
        ExitCode::data,
        "{}: no image lies in its {} class directories, but one directory deeper, as in {}: move or link them, so that "
        "they are <root>/<class>/<image>",
        where, listing.images_of_class.size(), printable(listing.deeper, PATH_MAX));
  }
  if (images == 0) {
    fail(ExitCode::data, "{}: {} class directories but no image (.jpg, .jpeg, .jpe, .png) in any", where,
         listing.images_of_class.size());
  }
  warn_of_empty_classes(listing);
  return std::move(listing.paths);
}

std::vector<std::string> list_images(const std::vector<std::string>& paths) {
  std::vector<std::string> images;
  for (const std::string& path : paths) {
    if (is_directory(path)) {
      list_below(path, images);
    } else {
      images.push_back(path);
    }
  }
  return images;
}

std::unique_ptr<DataSource> open_images(const std::vector<std::string>& files) {
  return std::make_unique<ImageFiles>(files);
}

std::unique_ptr<DataSource> open_folder(const DataSourceOptions& options) {
  return std::make_unique<FolderSource>(options);
}

}  // namespace lockstep
