// The checkpoint file: what is in it, building it in memory, reading it back. The layout is an interface that other
// programs rely on:
//
//   user block (512 bytes)      text: format, step, length of the file, checksum over everything after the block
//   /                           attributes: format, format_version, complete (written last), step, epoch,
//                               samples_seen, world_size, global_batch, seed, model, created
//   /model/<name>               float32, canonical shapes, torchvision's state_dict names
//   /ema/<name>                 the same, when averaging is on
//   /optimizer/<slot>/<name>
//   /training/<name>            single numbers ([1], int64 or float64) that exact resume needs
//   /config                     the effective configuration, TOML text as uint8
//   /classes                    names of the model's outputs, UTF-8 strings, where the data set has names
//
// Every data set is chunked with a Fletcher32 checksum. That protects chunks only, so the user block's checksum covers
// the whole file, and nothing is handed to the HDF5 library before it has been found right.
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
  int64_t step = 0;  // updates done
  int64_t epoch = 0;
  int64_t samples_seen = 0;
  int64_t world_size = 1;
  int64_t global_batch = 0;
  int64_t seed = 0;
  std::string model;
  std::string created;  // ISO 8601; empty: now, when the file is built
};

// One array on its way into a file.
struct CheckpointArray {
  std::string path;  // "/model/fc.weight"
  Shape shape;       // a scalar is stored as [1]
  const float* data = nullptr;
};

using TrainingValue = std::variant<int64_t, double>;

struct CheckpointContents {
  CheckpointMeta meta;
  std::vector<CheckpointArray> arrays;
  std::map<std::string, TrainingValue> training;
  std::string config;
  std::vector<std::string> classes;  // in the order of the model's outputs; empty: not known
};

// The whole file in memory, ready to be written as it is. Throws Error(checkpoint) naming `name`.
Hdf5Image build_checkpoint(const CheckpointContents& contents, const std::string& name);

// About the size of the file, for planning disk space.
int64_t estimate_checkpoint_bytes(const CheckpointContents& contents);

// What a file's first 512 bytes say; enough to sort files without reading them.
struct CheckpointHeader {
  int64_t version = 0;
  int64_t step = 0;
  int64_t file_bytes = 0;
  uint64_t checksum = 0;  // CRC-64 of everything after the user block
};

// Reads the header and compares the file's length; not the checksum, which costs reading the whole file. Throws
// Error(checkpoint) naming the file and what is wrong: empty, truncated, not a checkpoint, damaged, newer version.
CheckpointHeader read_checkpoint_header(const std::string& path);

// A file that has been read and found whole; holds it in memory (once). One thread at a time.
class CheckpointReader {
 public:
  // Throws Error(checkpoint) as read_checkpoint_header does, and for a wrong checksum, a missing `complete` mark, a
  // field that no run can have written (a negative step), groups that contain themselves, and arrays of more bytes than
  // a file of this size may declare (io/hdf5.h).
  static CheckpointReader open(const std::string& path);
  // A checkpoint, or any HDF5 file whose data sets bear parameter names, at the root or under /model (no checksum to
  // check and no meta data then; the same limits).
  static CheckpointReader open_weights(const std::string& path);
  CheckpointReader(CheckpointReader&&) noexcept = default;

  const std::string& path() const { return path_; }
  const CheckpointMeta& meta() const { return meta_; }
  int64_t version() const { return version_; }  // of the format; 0 for a file of bare weights
  int64_t file_bytes() const { return static_cast<int64_t>(bytes_.size()); }

  struct Array {
    std::string path;
    Shape shape;
  };
  // All numeric arrays of rank 4 at most under the group, sorted by path; empty when there is no such group.
  std::vector<Array> arrays(const std::string& group) const;
  bool has(const std::string& path) const { return file_->exists(path); }
  // Where the model's parameters are: "/model", or "/" in a file of bare weights.
  std::string model_group() const { return has("/model") ? "/model" : "/"; }
  std::vector<std::string> optimizer_slots() const;

  // `to` holds exactly the array's elements.
  void read(const std::string& path, std::span<float> to) const;
  std::string config() const;
  std::vector<std::string> classes() const;  // empty where the file has none
  std::map<std::string, TrainingValue> training() const;

 private:
  CheckpointReader(std::string path, std::vector<std::byte> bytes);
  void read_meta(const CheckpointHeader& header);
  void check_training() const;
  void find_arrays();

  std::string path_;
  std::vector<std::byte> bytes_;
  std::optional<Hdf5File> file_;
  CheckpointMeta meta_;
  int64_t version_ = 0;
  std::vector<Array> arrays_;  // all, sorted by path
};

}  // namespace lockstep
