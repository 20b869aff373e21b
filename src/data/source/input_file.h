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

// Owns one descriptor. Any number of threads may call the const functions at once, because pread uses no file position.
class InputFile {
 public:
  // Throws Error(data), which names the path, if the file cannot be opened or is not a regular file.
  explicit InputFile(std::string path);

  const std::string& path() const { return path_; }
  std::string name() const;  // the last part of the path, for messages
  int64_t size_bytes() const { return size_bytes_; }
  int64_t modified_ns() const { return modified_ns_; }

  // Fills `bytes` with the bytes from `offset` on. Throws Error(data) on a read error, or if the file has become
  // shorter.
  void read(int64_t offset, std::span<std::byte> bytes) const;

 private:
  std::string path_;
  FileDescriptor descriptor_;
  int64_t size_bytes_ = 0;
  int64_t modified_ns_ = 0;
};

// Opens `path`. Under BadRecords::skip, returns nothing for a file that cannot be opened, and rank 0 logs a warning.
std::optional<InputFile> open_or_leave_out(const std::string& path, BadRecords policy);

// Raises the limit of open descriptors so that this process can open `files` in addition to those of its libraries, as
// far as the hard limit allows: ImageNet's 1,152 shards exceed the usual soft limit of 1,024.
void allow_open_files(size_t files);

}  // namespace lockstep
