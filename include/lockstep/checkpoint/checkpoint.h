// The checkpoint file: its contents, how it is built in memory, and how it is read. Other programs rely on the layout:
//
//   user block (512 bytes)      text: format, step, length of the file, checksum of everything after the block
//   /                           attributes: format, format_version, complete (written last), step, epoch,
//                               samples_seen, world_size, global_batch, seed, model, created
//   /model/<name>               float32, canonical shapes, torchvision's state_dict names
//   /ema/<name>                 the same, if ema.decay is above 0
//   /optimizer/<slot>/<name>
//   /training/<name>            single numbers ([1], int64 or float64) that exact resume needs
//   /config                     the effective configuration, TOML text as uint8
//   /classes                    names of the model's outputs, UTF-8 strings, if the data set has names
//
// Every data set is chunked, with a Fletcher-32 checksum. Because that protects only chunks, the user block has a
// checksum of the whole file, which is verified before the HDF5 library sees the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/io/hdf5.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

inline constexpr std::string_view kCheckpointFormat = "lockstep-checkpoint";
inline constexpr int64_t kCheckpointVersion = 1;

struct CheckpointMeta {
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t samples_seen = 0;
  int64_t world_size = 1;
  int64_t global_batch = 0;
  int64_t seed = 0;
  std::string model;
  std::string created;  // ISO 8601; if empty, the time at which the file is built
};

struct CheckpointArray {
  std::string path;       // "/model/fc.weight", "/ema/fc.weight", "/optimizer/momentum/fc.weight"
  Shape shape;            // a scalar is stored as [1]
  float* data = nullptr;  // memory of its elements
};

using TrainingValue = std::variant<int64_t, double>;

struct CheckpointContents {
  CheckpointMeta meta;
  std::vector<CheckpointArray> arrays;
  std::map<std::string, TrainingValue> training;
  std::string config;
  std::vector<std::string> classes;  // in the order of the model's outputs; empty if unknown
};

// Returns the complete file. Throws Error(checkpoint), which names `name`.
Hdf5Image build_checkpoint(const CheckpointContents& contents, const std::string& name);

// Returns the approximate size of the file.
int64_t estimate_checkpoint_bytes(const CheckpointContents& contents);

// The contents of the user block, which suffice to sort files without reading them completely.
struct CheckpointHeader {
  int64_t version = 0;
  int64_t step = 0;
  int64_t file_bytes = 0;
  uint64_t checksum = 0;  // CRC-64 of everything after the user block
};

// Reads the header and verifies the length of the file, but not the checksum, for which it would have to read the whole
// file. Throws Error(checkpoint), which names the file and what is wrong: empty, truncated, not a checkpoint, damaged,
// or of a newer version.
CheckpointHeader read_checkpoint_header(const std::string& path);

// A file that has been read and verified. Keeps the file in memory. Not thread-safe.
class CheckpointReader {
 public:
  // Throws Error(checkpoint) as read_checkpoint_header() does, and also for a wrong checksum, a missing attribute
  // `complete`, a field that no run can have written (a negative step), groups that contain themselves, and arrays that
  // declare more bytes than a file of this size may (io/hdf5.h).
  static CheckpointReader open(const std::string& path);
  // Opens a checkpoint, or any HDF5 file whose data sets have the names of parameters, at the root or under /model.
  // Such a file has no checksum and no metadata; the same limits apply.
  static CheckpointReader open_weights(const std::string& path);
  CheckpointReader(CheckpointReader&&) noexcept = default;

  const std::string& path() const { return path_; }
  const CheckpointMeta& meta() const { return meta_; }
  int64_t version() const { return version_; }  // of the format; 0 if the file is not a checkpoint
  int64_t file_bytes() const { return bytes_.size(); }

  struct Array {
    std::string path;
    Shape shape;
  };
  // Returns all numeric arrays of at most rank 4 under the group, sorted by path. Empty if there is no such group.
  std::vector<Array> arrays(const std::string& group) const;
  bool has(const std::string& path) const { return file_->exists(path); }
  // Returns the group of the model's parameters: "/model", or "/" if the file is not a checkpoint.
  std::string model_group() const { return has("/model") ? "/model" : "/"; }
  std::vector<std::string> optimizer_slots() const;

  // `to` must have the number of elements of the array.
  void read(const std::string& path, std::span<float> to) const;
  std::string config() const;
  std::vector<std::string> classes() const;  // empty if the file has none
  std::map<std::string, TrainingValue> training() const;

 private:
  CheckpointReader(std::string path, std::vector<std::byte> bytes);
  void read_meta(const CheckpointHeader& header);
  void check_training() const;

  std::string path_;
  std::vector<std::byte> bytes_;
  std::optional<Hdf5File> file_;
  CheckpointMeta meta_;
  int64_t version_ = 0;
  std::vector<Array> arrays_;  // sorted by path
};

}  // namespace lockstep
