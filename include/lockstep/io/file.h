// Files with plain POSIX calls: whole reads, positioned reads, and writes that either happen entirely or not at all.
// Every function throws Error with the exit code the caller passes as `blame`; messages name the path and the system's
// reason. The umask decides who may read and write new files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/unique_handle.h"

namespace lockstep {

struct FileDescriptorTraits {
  using type = int;
  static type invalid() { return -1; }
  static void destroy(type descriptor) noexcept;  // ignores errors: a writer has called close_checked before
};
using FileDescriptor = UniqueHandle<FileDescriptorTraits>;

FileDescriptor open_for_reading(const std::string& path, ExitCode blame);

// The same for files that can be read at any offset. Refuses a directory, a named pipe, a socket or a device, and says
// which it is. Never blocks, whereas a plain open of a pipe blocks until somebody writes to it.
FileDescriptor open_regular_file(const std::string& path, ExitCode blame);

int64_t file_size(const FileDescriptor& file, const std::string& path, ExitCode blame);

// Reads exactly to.size() bytes from `offset`, in pieces; a file that ends earlier is an error. Thread-safe.
struct ReadAt {
  const std::string& path;  // for messages
  int64_t offset = 0;
  ExitCode blame = ExitCode::internal;
};
void pread_all(const FileDescriptor& file, std::span<std::byte> to, const ReadAt& where);

// Reads a whole file. One without a size (a pipe, a terminal, a file of /proc) is read to its end, but at most
// kLargestStream bytes, because it may never end. More than `limit` bytes are an error, and so is a stream that
// delivers neither bytes nor its end for `quiet_seconds`, such as a named pipe without a writer.
inline constexpr int64_t kLargestStream = int64_t{4} << 30;
inline constexpr int64_t kLargestText = int64_t{16} << 20;
std::vector<std::byte> read_file(const std::string& path, ExitCode blame);
std::string read_text_file(const std::string& path, ExitCode blame, int64_t limit = kLargestText);
struct WholeRead {
  ExitCode blame = ExitCode::internal;
  int64_t limit = kLargestText;
  double quiet_seconds = 30;
};
std::string read_text_file(const std::string& path, const WholeRead& how);

// Reads a whole file that open_regular_file accepts, for formats that are read at any offset.
std::vector<std::byte> read_regular_file(const std::string& path, ExitCode blame);

// Writes all of `bytes` at the descriptor's position, resuming after short writes and EINTR.
void write_all(const FileDescriptor& file, std::span<const std::byte> bytes, const std::string& path, ExitCode blame);

// Creates a file. Returns an invalid descriptor if it exists already.
FileDescriptor create_file(const std::string& path, ExitCode blame);

// Opens a log, a regular file, which is created if necessary, like its directory. Each write(2) appends to the file.
FileDescriptor open_for_appending(const std::string& path, ExitCode blame);

// Whether `path` still names the open file; false once somebody has deleted, moved or replaced it.
bool is_at(const FileDescriptor& file, const std::string& path) noexcept;

// Whether the file holds exactly `bytes`, read from the disk and not from the page cache.
bool reads_back(const FileDescriptor& file, std::span<const std::byte> bytes);

struct AtomicWrite {
  ExitCode blame = ExitCode::internal;
  bool verify = false;  // read the temporary back and compare it before it gets its name
  bool flush = true;    // false for files that a crash of the machine may lose
};

// Publishes `bytes` under `path`: a fresh temporary beside it (path + ".tmp", or ".tmp.N" when that is taken), write,
// fsync, rename over `path`, fsync of the directory. Readers see the old file or the whole new one. On failure the
// temporary is removed, the file at `path` is unchanged, and the message says what a full disk lacks. Bytes that start
// on a page boundary bypass the page cache if the file system allows it.
void write_file_atomically(const std::string& path, std::span<const std::byte> bytes, const AtomicWrite& options);
void write_text_atomically(const std::string& path, std::string_view text, ExitCode blame);

// True for the names of the temporaries of write_file_atomically.
bool is_temporary_name(std::string_view name);

// Points the symbolic link `link` at `target` (used as given, so a relative target stays relative), by rename.
struct SymlinkPaths {
  std::string link;
  std::string target;
};
void replace_symlink(const SymlinkPaths& paths, ExitCode blame);

void fsync_directory(const std::string& path, ExitCode blame);

// Bytes an unprivileged process may still write on the file system of `path`; -1 if unknown.
int64_t free_bytes(const std::string& path) noexcept;

// Creates a directory and those above it, like mkdir -p.
void make_directories(const std::string& path, ExitCode blame);

// Names in a directory, sorted bytewise, without "." and "..".
std::vector<std::string> list_directory(const std::string& path, ExitCode blame);

bool path_exists(const std::string& path) noexcept;

// Removes a file or link; false when it could not (errno tells why). Absent counts as removed.
bool remove_file(const std::string& path) noexcept;

// "a/b/c.h5" -> "a/b"; "c.h5" -> ".".
std::string parent_directory(const std::string& path);

}  // namespace lockstep
