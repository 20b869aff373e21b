#include "data/hdf5_source.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "data/input_file.h"
#include "lockstep/io/hdf5.h"

namespace lockstep {
namespace {

// One file. Any number of threads may call read().
class Hdf5Images {
 public:
  explicit Hdf5Images(const std::string& path)
      : file_(path), images_(open_images(path)), row_(row_of(path, images_.info())) {
    const Hdf5DatasetInfo& info = images_.info();
    const Hdf5File file = Hdf5File::open(path, ExitCode::data);
    const Hdf5Dataset labels = file.dataset("/labels");
    const Hdf5Type type = labels.info().type;
    const bool integers =
        type == Hdf5Type::u8 || type == Hdf5Type::i32 || type == Hdf5Type::i64 || type == Hdf5Type::other_integer;
    if (!integers || labels.info().dims != std::vector<int64_t>{info.dims[0]}) {
      fail(ExitCode::data, "{}: /labels must hold {} integers, one an image", path, info.dims[0]);
    }
    labels_ = labels.read<int64_t>();
  }

  const InputFile& file() const { return file_; }
  int64_t size() const { return images_.info().dims[0]; }

  void read(int64_t index, Sample& sample) const {
    const Hdf5DatasetInfo& info = images_.info();
    const bool bytes = info.type == Hdf5Type::u8;
    const int64_t row_bytes = row_ * static_cast<int64_t>(bytes ? sizeof(uint8_t) : sizeof(float));
    sample.buffer.resize(static_cast<size_t>(row_bytes));
    if (info.file_offset >= 0 && (bytes || info.type == Hdf5Type::f32)) {
      file_.read(info.file_offset + index * row_bytes, sample.buffer);
    } else {
      const std::lock_guard lock(mutex_);
      if (bytes) {
        images_.read_rows(index, std::span(reinterpret_cast<uint8_t*>(sample.buffer.data()), sample.buffer.size()));
      } else {
        images_.read_rows(index, std::span(reinterpret_cast<float*>(sample.buffer.data()), static_cast<size_t>(row_)));
      }
    }
    sample.kind = bytes ? Sample::Kind::u8 : Sample::Kind::f32;
    sample.bytes = sample.buffer;
    sample.channels = info.dims[1];
    sample.height = info.dims[2];
    sample.width = info.dims[3];
    sample.label = labels_[static_cast<size_t>(index)];
  }

 private:
  static Hdf5Dataset open_images(const std::string& path) {
    return Hdf5File::open(path, ExitCode::data).dataset("/images");
  }

  // Elements of one image.
  static int64_t row_of(const std::string& path, const Hdf5DatasetInfo& info) {
    const bool numbers = info.type == Hdf5Type::u8 || info.type == Hdf5Type::f32 || info.type == Hdf5Type::f64 ||
                         info.type == Hdf5Type::other_float;
    if (!numbers) fail(ExitCode::data, "{}: /images must be uint8 or floating-point", path);
    if (info.dims.size() != 4) {
      fail(ExitCode::data, "{}: /images must be [N,C,H,W], but has {} dimensions", path, info.dims.size());
    }
    if ((info.dims[1] != 1 && info.dims[1] != 3) || info.dims[2] < 1 || info.dims[3] < 1) {
      fail(ExitCode::data, "{}: /images is [{},{},{},{}]; 1 or 3 channels and at least one pixel are needed", path,
           info.dims[0], info.dims[1], info.dims[2], info.dims[3]);
    }
    return info.dims[1] * info.dims[2] * info.dims[3];
  }

  const InputFile file_;
  const Hdf5Dataset images_;
  const int64_t row_;
  std::vector<int64_t> labels_;
  mutable std::mutex mutex_;  // one thread at a time in images_
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
    return fmt::format("hdf5: {} images in {} file{}", size(), files_.size(), files_.size() == 1 ? "" : "s");
  }

 private:
  struct Place {
    const Hdf5Images* file = nullptr;
    int64_t index = 0;  // in the file
  };

  Place find(int64_t index) const {
    require(index >= 0 && index < size(), "image {} of {}", index, size());
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
    const Hdf5Images* file = files_[static_cast<size_t>(end - ends_.begin())].get();
    return {.file = file, .index = index - (*end - file->size())};
  }

  void fetch(int64_t index, Sample& sample) const override {
    const Place place = find(index);
    place.file->read(place.index, sample);
  }

  std::vector<std::unique_ptr<Hdf5Images>> files_;  // by pointer: a mutex does not move
  std::vector<int64_t> ends_;                       // images in this and all earlier files
};

}  // namespace

std::unique_ptr<DataSource> open_hdf5(const DataSourceOptions& options) {
  return std::make_unique<Hdf5Source>(options);
}

}  // namespace lockstep
