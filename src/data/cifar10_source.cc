#include "data/cifar10_source.h"

#include <algorithm>
#include <vector>

#include "data/input_file.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kPixelBytes = 3 * kSide * kSide;
constexpr int64_t kRecordBytes = 1 + kPixelBytes;

class Cifar10Source final : public DataSource {
 public:
  explicit Cifar10Source(const DataSourceOptions& options) : DataSource(options.labels) {
    for (const std::string& path : options.files) {
      const InputFile& file = files_.emplace_back(path);
      const int64_t rest = file.size_bytes() % kRecordBytes;
      if (rest != 0 && options.bad_records == BadRecords::fail) {
        fail(ExitCode::data, "{}: ends {} bytes after its last whole record of {} bytes: cut off, or no CIFAR-10 file",
             path, rest, kRecordBytes);
      }
      if (rest != 0 && log_rank() == 0) log_warning("{}: the last {} bytes are no whole record; left out", path, rest);
      ends_.push_back(size() + file.size_bytes() / kRecordBytes);
    }
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }

  std::string where(int64_t index) const override {
    const Place place = find(index);
    return fmt::format("{} record {} (offset {})", place.file->name(), place.record, place.record * kRecordBytes);
  }

  std::string description() const override {
    return fmt::format("cifar10: {} images in {} file{}", size(), files_.size(), files_.size() == 1 ? "" : "s");
  }

  std::vector<std::string> class_names() const override {
    return {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
  }

 private:
  struct Place {
    const InputFile* file = nullptr;
    int64_t record = 0;
  };

  Place find(int64_t index) const {
    require(index >= 0 && index < size(), "record {} of {}", index, size());
    const auto at = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
    return {.file = &files_[at], .record = at == 0 ? index : index - ends_[at - 1]};
  }

  void fetch(int64_t index, Sample& sample) const override {
    const Place place = find(index);
    sample.buffer.resize(kRecordBytes);
    place.file->read(place.record * kRecordBytes, sample.buffer);
    sample.kind = Sample::Kind::u8;
    sample.bytes = std::span<const std::byte>(sample.buffer).subspan(1);
    sample.channels = 3;
    sample.height = kSide;
    sample.width = kSide;
    sample.label = std::to_integer<int64_t>(sample.buffer[0]);
  }

  std::vector<InputFile> files_;
  std::vector<int64_t> ends_;  // records in this and all earlier files
};

}  // namespace

std::unique_ptr<DataSource> open_cifar10(const DataSourceOptions& options) {
  return std::make_unique<Cifar10Source>(options);
}

}  // namespace lockstep
