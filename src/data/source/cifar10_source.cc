#include <algorithm>
#include <climits>
#include <optional>
#include <string>
#include <vector>

#include "data/source/file_kind.h"
#include "data/source/format_sources.h"
#include "data/source/input_file.h"
#include "lockstep/base/counted.h"
#include "lockstep/base/log.h"
#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

constexpr int64_t kSide = 32;
constexpr int64_t kPixelBytes = 3 * kSide * kSide;

// CIFAR-10 has one label byte; CIFAR-100 has a byte for the superclass, then one for the class.
struct Layout {
  int64_t label_bytes;
  int64_t classes;
  const char* name;
  const char* format;  // data.format
  int64_t record_bytes() const { return label_bytes + kPixelBytes; }
};
constexpr Layout kCifar10 = {1, 10, "CIFAR-10", "cifar10"};
constexpr Layout kCifar100 = {2, 100, "CIFAR-100", "cifar100"};

// Describes a file that does not consist of whole records: "; the file is a Python pickle, ...", or nothing.
std::string other_kind(const InputFile& file, const Layout& layout) {
  const std::string kind = describe_other_kind(file, fmt::format("the binary version of {}", layout.name));
  if (!kind.empty()) return "; " + kind;
  const Layout& other = layout.label_bytes == 1 ? kCifar100 : kCifar10;
  if (file.size_bytes() == 0 || file.size_bytes() % other.record_bytes() != 0) return {};
  return fmt::format("; its size is that of {} data: data.format = \"{}\"", other.name, other.format);
}

class CifarSource final : public DataSource {
 public:
  CifarSource(const DataSourceOptions& options, const Layout& layout)
      : DataSource(options.labels), layout_(layout), record_bytes_(layout.record_bytes()) {
    for (const std::string& path : options.files) {
      std::optional<InputFile> opened = open_or_leave_out(path, options.bad_records);
      if (!opened) {
        ++left_out_.files;
        continue;
      }
      const InputFile& file = files_.emplace_back(*std::move(opened));
      const int64_t rest = file.size_bytes() % record_bytes_;
      const std::string name = printable(path, PATH_MAX);
      if (rest != 0 && options.bad_records == BadRecords::fail) {
        fail(ExitCode::data, "{}: ends {} after its last whole record of {} bytes: cut off, or no {} file{}", name,
             counted(rest, "byte"), record_bytes_, layout_.name, other_kind(file, layout_));
      }
      if (rest != 0 && log_rank() == 0) {
        log_warning("{}: the last {} bytes are no whole record{}; left out", name, rest, other_kind(file, layout_));
      }
      left_out_.bytes += rest;
      left_out_.files += rest > 0 ? 1 : 0;
      ends_.push_back(size() + file.size_bytes() / record_bytes_);
    }
  }

  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }

  std::string where(int64_t index) const override {
    const Place place = find(index);
    return fmt::format("{} record {} (offset {})", printable(place.file->name()), place.record,
                       place.record * record_bytes_);
  }

  std::string description() const override {
    return fmt::format("{}: {} in {}", layout_.name, counted(size(), "image"), counted(files_.size(), "file"));
  }

  LeftOut left_out() const override { return left_out_; }

  std::vector<std::string> class_names() const override {
    if (layout_.label_bytes != 1) return {};
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
    sample.buffer.resize(static_cast<size_t>(record_bytes_));
    place.file->read(place.record * record_bytes_, sample.buffer);
    sample.kind = Sample::Kind::u8;
    sample.bytes = std::span<const std::byte>(sample.buffer).subspan(static_cast<size_t>(layout_.label_bytes));
    sample.channels = 3;
    sample.height = kSide;
    sample.width = kSide;
    sample.label = std::to_integer<int64_t>(sample.buffer[layout_.label_bytes - 1]);
    if (sample.label >= layout_.classes) {
      throw BadRecord(
          fmt::format("its label is {}, but {} has 0 to {}", sample.label, layout_.name, layout_.classes - 1));
    }
  }

  const Layout layout_;
  const int64_t record_bytes_;
  LeftOut left_out_;
  std::vector<InputFile> files_;
  std::vector<int64_t> ends_;  // number of records in this and all earlier files
};

}  // namespace

std::unique_ptr<DataSource> open_cifar10(const DataSourceOptions& options) {
  return std::make_unique<CifarSource>(options, kCifar10);
}

std::unique_ptr<DataSource> open_cifar100(const DataSourceOptions& options) {
  return std::make_unique<CifarSource>(options, kCifar100);
}

}  // namespace lockstep
