#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "data/source/example.h"
#include "data/source/format_sources.h"
#include "data/source/input_file.h"
#include "data/source/packed_classes.h"
#include "data/source/record_index.h"
#include "lockstep/base/counted.h"
#include "lockstep/base/printable.h"
#include "lockstep/data/source/formats.h"
#include "lockstep/io/crc32c.h"

namespace lockstep {
namespace {

// Reads records; parse() interprets their contents.
class RecordSource : public DataSource {
 public:
  explicit RecordSource(const DataSourceOptions& options) : DataSource(options.labels), format_(options.format) {
    allow_open_files(options.files.size());
    const std::string cache = options.cache_directory.empty() ? default_cache_directory() : options.cache_directory;
    shards_.reserve(options.files.size());
    for (const std::string& path : options.files) {
      std::optional<InputFile> file = open_or_leave_out(path, options.bad_records);
      if (!file) {
        ++left_out_.files;
        continue;
      }
      RecordIndex index = load_record_index(*file, options.bad_records, cache);
      const int64_t rest = file->size_bytes() - index.bounds.back();
      left_out_.bytes += rest;
      left_out_.files += rest > 0 ? 1 : 0;
      size_ += index.records();
      shards_.push_back({.file = *std::move(file), .index = std::move(index), .end = size_});
    }
  }

  int64_t size() const override { return size_; }

  std::string where(int64_t index) const override {
    const Place place = find(index);
    return fmt::format("{} record {} (offset {})", printable(place.shard->file.name()), place.record, place.begin);
  }

  LeftOut left_out() const override { return left_out_; }

  std::string description() const override {
    return fmt::format("{}: {} in {}", format_, counted(size_, "record"), counted(shards_.size(), "file"));
  }

 private:
  struct Shard {
    InputFile file;
    RecordIndex index;
    int64_t end = 0;  // records in this and all earlier shards
  };
  struct Place {
    const Shard* shard = nullptr;
    int64_t record = 0;
    int64_t begin = 0;  // bytes of the record in the file, header and footer included
    int64_t end = 0;
  };

  Place find(int64_t index) const {
    const auto shard = std::upper_bound(shards_.begin(), shards_.end(), index,
                                        [](int64_t value, const Shard& candidate) { return value < candidate.end; });
    require(index >= 0 && shard != shards_.end(), "record {} of {}", index, size_);
    const int64_t record = index - (shard->end - shard->index.records());
    const auto at = static_cast<size_t>(record);
    return {.shard = &*shard, .record = record, .begin = shard->index.bounds[at], .end = shard->index.bounds[at + 1]};
  }

  void fetch(int64_t index, Sample& sample) const override {
    const Place place = find(index);
    if (place.end - place.begin > kMaxRecordBytes) {
      throw BadRecord(
          fmt::format("it has {} bytes; a tf.train.Example has at most {}", place.end - place.begin, kMaxRecordBytes));
    }
    sample.buffer.resize(static_cast<size_t>(place.end - place.begin));
    place.shard->file.read(place.begin, sample.buffer);
    const std::span<const std::byte> record(sample.buffer);
    const auto header = record.first<kRecordHeaderBytes>();
    const auto data = record.subspan(kRecordHeaderBytes, record.size() - kRecordHeaderBytes - kRecordFooterBytes);
    if (parse_record_header(header) != data.size()) {
      throw BadRecord("its length is wrong, or the file was changed after it was indexed");
    }
    uint32_t masked = 0;
    std::memcpy(&masked, record.last<kRecordFooterBytes>().data(), sizeof masked);
    if (mask_crc32c(crc32c(data)) != masked) throw BadRecord("the checksum of its data is wrong");
    parse(data, sample);
  }

  // `record` refers to sample.buffer.
  virtual void parse(std::span<const std::byte> record, Sample& sample) const = 0;

  const std::string format_;
  LeftOut left_out_;
  std::vector<Shard> shards_;
  int64_t size_ = 0;
};

class ImageRecords final : public RecordSource {
 public:
  explicit ImageRecords(const DataSourceOptions& options)
      : RecordSource(options), class_names_(read_class_names(options.files)) {}

  std::vector<std::string> class_names() const override { return class_names_; }

 private:
  const std::vector<std::string> class_names_;

  void parse(std::span<const std::byte> record, Sample& sample) const override {
    const ImageExample example = parse_image_example(record);
    sample.kind = Sample::Kind::encoded;
    sample.bytes = example.encoded;
    sample.label = example.label;
  }
};

class SparseRecords final : public RecordSource {
 public:
  explicit SparseRecords(const DataSourceOptions& options) : RecordSource(options), keys_(options.sparse) {}

 private:
  void parse(std::span<const std::byte> record, Sample& sample) const override {
    parse_sparse_example(record, keys_, sample);
  }
  const SparseKeys keys_;
};

}  // namespace

std::unique_ptr<DataSource> open_tfrecord(const DataSourceOptions& options) {
  return std::make_unique<ImageRecords>(options);
}

std::unique_ptr<DataSource> open_sparse_tfrecord(const DataSourceOptions& options) {
  return std::make_unique<SparseRecords>(options);
}

}  // namespace lockstep
