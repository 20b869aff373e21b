// A file of a data set, open for reading at any offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/data/source/data_source.h"
#include "lockstep/io/file.h"

namespace lockstep {

// Owns one descriptor. All const functions may be called by any number of threads at once (pread keeps no position).
class InputFile {
 public:
  // Throws Error(data) naming the path when it cannot be opened or is no regular file.
  explicit InputFile(std::string path);

  const std::string& path() const { return path_; }
  std::string name() const;  // the last part of the path, for messages
  int64_t size_bytes() const { return size_bytes_; }
  int64_t modified_ns() const { return modified_ns_; }

  // Fills `bytes` from `offset`. Throws Error(data) on a read error, and when the file has become shorter.
  void read(int64_t offset, std::span<std::byte> bytes) const;

 private:
  std::string path_;
  FileDescriptor descriptor_;
  int64_t size_bytes_ = 0;
  int64_t modified_ns_ = 0;
};

// Opens `path`; nothing, with a warning of rank 0, for a file that cannot be opened under BadRecords::skip.
std::optional<InputFile> open_or_leave_out(const std::string& path, BadRecords policy);

// Lets this process have at least `files` descriptors open beside those of its libraries, as far as the system's hard
// limit goes: ImageNet's 1,152 shards are more than the usual soft limit of 1,024.
void allow_open_files(size_t files);

}  // namespace lockstep
