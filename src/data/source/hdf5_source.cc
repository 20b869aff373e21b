#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <string_view>
#include <vector>

#include "data/source/file_kind.h"
#include "data/source/format_sources.h"
#include "data/source/input_file.h"
#include "lockstep/base/counted.h"
#include "lockstep/base/printable.h"
#include "lockstep/io/hdf5.h"

namespace lockstep {
namespace {

std::string_view name_of(Hdf5Type type) {
  constexpr std::string_view kNames[] = {"float32",        "float64", "uint8",  "int32",          "int64",
                                         "floating-point", "integer", "string", "of another type"};
  static_assert(std::size(kNames) == static_cast<size_t>(Hdf5Type::other) + 1, "one name for each type, in its order");
  return kNames[static_cast<size_t>(type)];
}

std::string text_of(const Hdf5DatasetInfo& info) {
  return fmt::format("{} {}", dims_text(info.dims), name_of(info.type));
}

// Lists the contents of the root and of the groups in it, for messages.
std::string contents_of(const Hdf5File& file) {
  constexpr size_t kShown = 10;
  std::vector<std::string> found;
  const auto look = [&](const std::string& group, const auto& deeper) -> void {
    for (const Hdf5File::Entry& entry : file.list(group)) {
      const std::string path = group == "/" ? "/" + entry.name : group + "/" + entry.name;
      if (found.size() > kShown) return;
      if (entry.kind == Hdf5File::Kind::group && group == "/") deeper(path, deeper);
      if (entry.kind == Hdf5File::Kind::dataset) {
        found.push_back(fmt::format("{} {}", printable(path), text_of(file.dataset(path).info())));
      }
    }
  };
  look("/", look);
  if (found.empty()) return "it has no data sets";
  const bool more = found.size() > kShown;
  if (more) found.pop_back();
  return fmt::format("it has {}{}", fmt::join(found, ", "), more ? ", ..." : "");
}

// Examines the first bytes only after the library has refused the file, because a user block may contain anything.
Hdf5File open_file(const std::string& path) {
  try {
    return Hdf5File::open(path, ExitCode::data);
  } catch (const Error&) {
    const std::string kind = describe_other_kind(InputFile(path), "an HDF5 file");
    if (!kind.empty()) fail(ExitCode::data, "{}: {}", path, kind);
    throw;
  }
}

Hdf5Dataset open_dataset(const std::string& path, const std::string& name) {
  const Hdf5File file = open_file(path);
  if (!file.exists(name)) fail(ExitCode::data, "{}: has no {}; {}", path, name, contents_of(file));
  return file.dataset(name);
}

// The layout of the images of a file.
struct ImageLayout {
  bool channels_last = false;
  int64_t channels = 0, height = 0, width = 0;

  int64_t elements() const { return channels * height * width; }
};

bool is_color(int64_t channels) { return channels == 1 || channels == 3; }

// Images are channels-first if their second extent can be that of channels, otherwise channels-last.
ImageLayout layout_of(const std::string& path, const Hdf5DatasetInfo& info) {
  const bool numbers = info.type == Hdf5Type::u8 || info.type == Hdf5Type::f32 || info.type == Hdf5Type::f64 ||
                       info.type == Hdf5Type::other_float;
  if (!numbers) fail(ExitCode::data, "{}: /images is {}; uint8 or floating-point is needed", path, text_of(info));
  if (info.dims.size() != 4) fail(ExitCode::data, "{}: /images is {}; [N,C,H,W] is needed", path, text_of(info));
  const bool last = !is_color(info.dims[1]) && is_color(info.dims[3]);
  const ImageLayout layout = last ? ImageLayout{true, info.dims[3], info.dims[1], info.dims[2]}
                                  : ImageLayout{false, info.dims[1], info.dims[2], info.dims[3]};
  if (!is_color(layout.channels) || layout.height < 1 || layout.width < 1) {
    fail(ExitCode::data, "{}: /images is {}; 1 or 3 channels and at least one pixel are needed", path, text_of(info));
  }
  const auto width = static_cast<int64_t>(info.type == Hdf5Type::u8 ? sizeof(uint8_t) : sizeof(float));
  if (layout.elements() > info.most_bytes / width) {
    fail(ExitCode::data, "{}: /images is {}, so that one image takes more than the {} bytes that the file may", path,
         text_of(info), info.most_bytes);
  }
  return layout;
}

// Converts [H,W,C] to [C,H,W].
template <class T>
void move_channels_first(std::span<const T> from, std::span<T> to, const ImageLayout& layout) {
  const auto pixels = static_cast<size_t>(layout.height * layout.width),
             channels = static_cast<size_t>(layout.channels);
  for (size_t c = 0; c < channels; ++c) {
    for (size_t p = 0; p < pixels; ++p) to[c * pixels + p] = from[p * channels + c];
  }
}

// Reads one file. read() is thread-safe.
class Hdf5Images {
 public:
  explicit Hdf5Images(const std::string& path)
      : file_(path), images_(open_dataset(path, "/images")), layout_(layout_of(path, images_.info())) {
    const int64_t count = images_.info().dims[0];
    const Hdf5Dataset labels = open_dataset(path, "/labels");
    const Hdf5DatasetInfo& info = labels.info();
    const bool integers = info.type == Hdf5Type::u8 || info.type == Hdf5Type::i32 || info.type == Hdf5Type::i64 ||
                          info.type == Hdf5Type::other_integer;
    const bool one_each = info.dims == std::vector<int64_t>{count} || info.dims == std::vector<int64_t>{count, 1};
    if (!integers || !one_each) {
      fail(ExitCode::data, "{}: /labels is {}, /images is {}; /labels must hold {} integers, one an image", path,
           text_of(info), text_of(images_.info()), count);
    }
    labels_ = labels.read<int64_t>();
  }

  const InputFile& file() const { return file_; }
  int64_t size() const { return images_.info().dims[0]; }
  bool channels_last() const { return layout_.channels_last; }

  void read(int64_t index, Sample& sample) const {
    const bool bytes = images_.info().type == Hdf5Type::u8;
    sample.buffer.resize(static_cast<size_t>(layout_.elements()) * (bytes ? sizeof(uint8_t) : sizeof(float)));
    if (bytes) {
      read_pixels(index, std::span(reinterpret_cast<uint8_t*>(sample.buffer.data()), sample.buffer.size()));
    } else {
      read_pixels(index,
                  std::span(reinterpret_cast<float*>(sample.buffer.data()), sample.buffer.size() / sizeof(float)));
    }
    sample.kind = bytes ? Sample::Kind::u8 : Sample::Kind::f32;
    sample.bytes = sample.buffer;
    sample.channels = layout_.channels;
    sample.height = layout_.height;
    sample.width = layout_.width;
    sample.label = labels_[index];
  }

 private:
  template <class T>
  void read_pixels(int64_t index, std::span<T> to) const {
    if (!layout_.channels_last || layout_.channels == 1) return read_stored(index, to);
    std::vector<T> stored(to.size());
    read_stored(index, std::span(stored));
    move_channels_first(std::span<const T>(stored), to, layout_);
  }

  // The values of the file, not converted.
  template <class T>
  void read_stored(int64_t index, std::span<T> to) const {
    const Hdf5DatasetInfo& info = images_.info();
    if (info.file_offset >= 0 && (info.type == Hdf5Type::u8 || info.type == Hdf5Type::f32)) {
      file_.read(info.file_offset + index * static_cast<int64_t>(to.size_bytes()), std::as_writable_bytes(to));
      return;
    }
    const std::lock_guard lock(mutex_);
    images_.read_rows(index, to);
  }

  const InputFile file_;
  const Hdf5Dataset images_;
  const ImageLayout layout_;
  std::vector<int64_t> labels_;
  mutable std::mutex mutex_;  // protects images_
};

class Hdf5Source final : public DataSource {
 public:
  explicit Hdf5Source(const DataSourceOptions& options) : DataSource(options.labels) {
    for (const std::string& path : options.files) {
      files_.push_back(std::make_unique<Hdf5Images>(path));
      ends_.push_back(size() + files_.back()->size());
    }
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  std::string where(int64_t index) const override {
    const Place place = find(index);
    return fmt::format("{} image {}", place.file->file().name(), place.index);
  }
  std::string description() const override {
    const bool last = std::ranges::any_of(files_, [](const auto& file) { return file->channels_last(); });
    return fmt::format("hdf5: {} in {}{}", counted(size(), "image"), counted(files_.size(), "file"),
                       last ? ", channels last ([N,H,W,C])" : "");
  }

 private:
  struct Place {
    const Hdf5Images* file = nullptr;
    int64_t index = 0;  // in the file
  };

  Place find(int64_t index) const {
    require(index >= 0 && index < size(), "image {} of {}", index, size());
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const Hdf5Images* file = files_[end - ends_.begin()].get();
    return {.file = file, .index = index - (*end - file->size())};
  }

  void fetch(int64_t index, Sample& sample) const override {
    const Place place = find(index);
    place.file->read(place.index, sample);
  }

  std::vector<std::unique_ptr<Hdf5Images>> files_;  // pointers, because a mutex cannot be moved
  std::vector<int64_t> ends_;                       // number of images in this and all earlier files
};

}  // namespace

std::unique_ptr<DataSource> open_hdf5(const DataSourceOptions& options) {
  return std::make_unique<Hdf5Source>(options);
}

}  // namespace lockstep
