// Random access to the samples of a data set, before they are decoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {

// The most bytes of one record or encoded picture; a protocol buffer cannot be longer either.
inline constexpr int64_t kMaxRecordBytes = (int64_t{1} << 31) - 1;

// How a record that cannot be used is handled: `fail` ends the run, `skip` counts it and continues without it.
enum class BadRecords : uint8_t { fail, skip };

// One record is damaged or undecodable while the rest of the data set may be fine. Every other data error (a label
// out of range, a file that cannot be read) is a plain Error, which `skip` does not cover.
class BadRecord : public Error {
 public:
  explicit BadRecord(const std::string& message, std::source_location at = std::source_location::current())
      : Error(ExitCode::data, message, at) {}
};

// One sample as it is stored. Move-only because `bytes` points into `buffer`. Reuse it, so that a worker thread
// allocates only while its buffer grows.
struct Sample {
  enum class Kind : uint8_t {
    encoded,  // a whole JPEG or PNG file
    u8,       // pixels [C,H,W], 0..255
    f32,      // pixels [C,H,W], 0..1
    sparse,   // ids and values, no bytes
  };

  Sample() = default;
  Sample(Sample&&) = default;
  Sample& operator=(Sample&&) = default;

  Kind kind = Kind::encoded;
  std::span<const std::byte> bytes;
  int64_t channels = 0;  // pixels only, like the next two
  int64_t height = 0;
  int64_t width = 0;
  int64_t label = 0;
  std::vector<int64_t> ids;   // sparse only, like the next
  std::vector<float> values;  // one for each id
  std::vector<std::byte> buffer;
};

// How stored labels become classes.
struct LabelRule {
  int64_t classes = 0;  // labels must lie in [0, classes); 0: not known, any label from 0 to 2^31-1
  int64_t offset = 0;   // added to every stored label first
};

struct LabelRange {
  int64_t smallest = 0;
  int64_t largest = -1;  // below `smallest`: no label
};

struct DataSourceOptions;

// A data set of a fixed number of samples. Owned by main; outlives every Loader that reads it. All const functions
// may be called by any number of threads at once.
class DataSource {
 public:
  virtual ~DataSource() = default;
  DataSource(const DataSource&) = delete;
  DataSource& operator=(const DataSource&) = delete;

  virtual int64_t size() const = 0;

  // Fills `sample` with record `index` in [0, size()). Throws BadRecord for a damaged record, one with non-finite
  // numbers and one for which there is not enough memory, and Error(data) for a file that cannot be read or a label
  // outside the allowed range; all name the record like where().
  void read(int64_t index, Sample& sample) const;

  // Returns the sample's position for messages, such as "train-00001-of-00004 record 17 (offset 123)".
  virtual std::string where(int64_t index) const = 0;

  // One line for the start of the log: "tfrecord: 1437 records in 1 file".
  virtual std::string description() const = 0;

  // Class names in label order, if the format has them; otherwise empty.
  virtual std::vector<std::string> class_names() const { return {}; }

  // If the format derives labels from names: uses the labels of another source, whose classes are `names` in label
  // order. Throws Error(data) for a class that is not among them. Must be called before any read.
  virtual void follow_classes(const std::vector<std::string>& /*names*/) {}

  // The parts of the files that could not be read when they were opened, under BadRecords::skip.
  struct LeftOut {
    int64_t files = 0;
    int64_t bytes = 0;  // at their ends; a file that cannot be opened counts none
  };
  virtual LeftOut left_out() const { return {}; }

  // The files or class directories, which an evaluation must not share with training.
  const std::vector<std::string>& inputs() const { return inputs_; }

  // The possible labels, if they are known without reading.
  virtual std::optional<LabelRange> known_labels() const { return {}; }

 protected:
  explicit DataSource(LabelRule labels) : labels_(labels) {}

  // Like read(), but `sample.label` is the label as stored and messages do not name the record yet.
  virtual void fetch(int64_t index, Sample& sample) const = 0;

 private:
  friend class SplitSource;                                                               // forwards fetch()
  friend std::unique_ptr<DataSource> open_data_source(const DataSourceOptions& options);  // knows the inputs
  const LabelRule labels_;
  std::vector<std::string> inputs_;
};

// Properties of some records, for the start of the log.
struct PixelRange {
  float smallest = 0;
  float largest = 0;
};
struct DataProbe {
  int64_t records = 0;  // that were read and are good
  LabelRange labels;
  std::optional<PixelRange> pixels;  // of floating-point images
};

// Reads `samples` records spread evenly over the source; a label out of range throws, as in read(). Bad records are
// skipped, and nothing is read if the labels are known.
DataProbe probe_data(const DataSource& source, int64_t samples);

// Returns an input that both sources read, "data/train-00001 and data/validation-00001"; empty if there is none.
// Compares device and inode numbers, so that a link does not hide it.
std::string shared_input(const DataSource& a, const DataSource& b);

// The synthetic data set: noise over a pattern that belongs to the class, so that a model can learn it.
struct SyntheticOptions {
  int64_t samples = 10'000;
  int64_t image_size = 299;
  int64_t channels = 3;
  uint64_t seed = 1;       // the classes' patterns
  uint64_t split = 0;      // 0: training; 1: validation (other samples of the same classes)
  int64_t vocabulary = 0;  // above 0: sparse samples of ids below this instead of images
  int64_t max_ids = 16;
};

// The features of a sparse record.
struct SparseKeys {
  std::string label = "label", ids = "ids", values = "values";
};

struct DataSourceOptions {
  std::string format;              // a name of data_format_names()
  std::vector<std::string> files;  // what list_inputs() returned on rank 0; not used by `synthetic`
  LabelRule labels;
  BadRecords bad_records = BadRecords::fail;  // skip: a damaged record header ends its file instead of the run
  std::string cache_directory;                // for record indexes; empty: default_cache_directory()
  SyntheticOptions synthetic;
  SparseKeys sparse;
};

}  // namespace lockstep
