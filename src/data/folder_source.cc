#include "data/folder_source.h"

#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "lockstep/base/log.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

bool is_folder(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// ".jpg" of "a/b.JPG"; empty without a dot. ASCII only: other bytes of a name are nobody's letters.
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

// What was passed over, by extension.
class Ignored {
 public:
  void add(std::string_view name) {
    const std::string extension = lower_extension(name);
    ++counts_[name.starts_with('.') ? "hidden" : extension.empty() ? "no extension" : extension];
  }
  void log(const std::string& root) const {
    std::string list;
    for (const auto& [kind, count] : counts_) list += fmt::format("{}{} {}", list.empty() ? "" : ", ", kind, count);
    if (!list.empty()) log_info("{}: ignored what is no class folder and no image: {}", root, list);
  }

 private:
  std::map<std::string, int64_t> counts_;
};

// "a/b/" -> "b"
std::string_view last_part(std::string_view path) {
  if (path.ends_with('/')) path.remove_suffix(1);
  return path.substr(path.rfind('/') + 1);
}

// The name of the folder that an image lies in.
std::string_view class_of(std::string_view image) { return last_part(image.substr(0, image.rfind('/'))); }

struct Listing {
  std::vector<std::string> paths;
  std::map<std::string, int64_t, std::less<>> images_of_class;
};

// Adds one root's class folders and images to `listing`.
void list_root(std::string root, Listing& listing) {
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  Ignored ignored;
  size_t loose_images = 0;
  size_t classes = 0;
  for (const std::string& name : list_directory(root, ExitCode::data)) {
    const std::string folder = root + "/" + name;
    if (name.starts_with('.') || !is_folder(folder)) {
      loose_images += is_image_name(name) ? 1 : 0;
      ignored.add(name);
      continue;
    }
    ++classes;
    listing.paths.push_back(folder + "/");
    int64_t& images = listing.images_of_class[name];
    for (const std::string& file : list_directory(folder, ExitCode::data)) {
      if (!is_image_name(file)) {
        ignored.add(file);
        continue;
      }
      listing.paths.push_back(folder + "/" + file);
      ++images;
    }
  }
  if (classes == 0 && loose_images > 0) {
    fail(ExitCode::data, "{}: holds {} images but no class folders; an image folder is <root>/<class>/<image>", root,
         loose_images);
  }
  if (classes == 0) {
    fail(ExitCode::data, "{}: holds no class folder; an image folder is <root>/<class>/<image>", root);
  }
  ignored.log(root);
}

class FolderSource final : public DataSource {
 public:
  explicit FolderSource(const DataSourceOptions& options) : DataSource(options.labels) {
    std::map<std::string, int64_t, std::less<>> numbers;
    for (const std::string& path : options.files) {
      if (path.ends_with('/')) {
        if (!is_folder(path)) fail(ExitCode::data, "{}: this rank cannot see the folder", path);
        numbers.emplace(last_part(path), 0);
      }
    }
    for (auto& [name, number] : numbers) {
      number = std::ssize(classes_);
      classes_.push_back(name);
    }
    const int64_t allowed = options.labels.classes;
    if (allowed > 0 && std::ssize(classes_) + options.labels.offset > allowed) {
      fail(ExitCode::data, "{}: {} class folders (label_offset {}), but model.classes is {}", options.files.front(),
           classes_.size(), options.labels.offset, allowed);
    }
    for (const std::string& path : options.files) {
      if (path.ends_with('/')) continue;
      const auto found = numbers.find(class_of(path));
      require(found != numbers.end(), "{} is listed without its folder", path);
      images_.push_back({.path = path, .label = found->second});
    }
  }

  int64_t size() const override { return std::ssize(images_); }
  std::string where(int64_t index) const override { return images_[static_cast<size_t>(index)].path; }
  std::string description() const override {
    return fmt::format("folder: {} images in {} classes", images_.size(), classes_.size());
  }
  std::vector<std::string> class_names() const override { return classes_; }

 private:
  struct Entry {
    std::string path;
    int64_t label = 0;
  };

  void fetch(int64_t index, Sample& sample) const override {
    require(index >= 0 && index < size(), "image {} of {}", index, size());
    const Entry& entry = images_[static_cast<size_t>(index)];
    const FileDescriptor file = open_for_reading(entry.path, ExitCode::data);
    sample.buffer.resize(static_cast<size_t>(file_size(file, entry.path, ExitCode::data)));
    pread_all(file, sample.buffer, {.path = entry.path, .offset = 0, .blame = ExitCode::data});
    sample.kind = Sample::Kind::encoded;
    sample.bytes = sample.buffer;
    sample.label = entry.label;
  }

  std::vector<Entry> images_;
  std::vector<std::string> classes_;
};

}  // namespace

std::vector<std::string> list_image_folders(const std::vector<std::string>& roots) {
  Listing listing;
  for (const std::string& root : roots) list_root(root, listing);
  int64_t images = 0;
  for (const auto& [name, count] : listing.images_of_class) {
    if (count == 0) log_warning("class folder {} has no image; it keeps its number", name);
    images += count;
  }
  if (images == 0) {
    fail(ExitCode::data, "{}: {} class folders but no image (.jpg, .jpeg, .jpe, .png) in any", fmt::join(roots, ", "),
         listing.images_of_class.size());
  }
  return std::move(listing.paths);
}

std::unique_ptr<DataSource> open_folder(const DataSourceOptions& options) {
  return std::make_unique<FolderSource>(options);
}

}  // namespace lockstep
