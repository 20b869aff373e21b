// Opens, reads and writes single files (io/file.h).
#include "lockstep/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <utility>

#include "io/file_errors.h"
#include "io/file_transfer.h"
#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

// The result of ::open() and its errno. O_NONBLOCK prevents waiting for a named pipe and has no effect on regular
// files.
FileDescriptor require_regular(FileDescriptor file, const std::string& path, ExitCode blame, int error) {
  struct stat status {};
  const bool known = (file ? ::fstat(file.get(), &status) : ::stat(path.c_str(), &status)) == 0;
  if (known && !S_ISREG(status.st_mode)) {
    fail(blame, "{}: is {}, where a file is needed", printable(path, PATH_MAX), kind_of_file(status.st_mode));
  }
  if (!file) fail_errno(path, "open", blame, error);
  if (!known) fail_errno(path, "stat", blame, errno);
  return file;
}

}  // namespace

void FileDescriptorTraits::destroy(type descriptor) noexcept { ::close(descriptor); }

FileDescriptor open_for_reading(const std::string& path, ExitCode blame) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) fail_errno(path, "open", blame, errno);
  return file;
}

FileDescriptor open_regular_file(const std::string& path, ExitCode blame) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return require_regular(std::move(file), path, blame, errno);
}

int64_t file_size(const FileDescriptor& file, const std::string& path, ExitCode blame) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno(path, "stat", blame, errno);
  if (S_ISDIR(status.st_mode)) fail_errno(path, "read", blame, EISDIR);
  return status.st_size;
}

void pread_all(const FileDescriptor& file, std::span<std::byte> to, const ReadAt& where) {
  const int64_t got = try_pread(file.get(), to, where.offset);
  if (got < 0) fail_errno(where.path, "read", where.blame, errno);
  if (got != static_cast<int64_t>(to.size())) {
    fail(where.blame, "{}: ends at byte {}, {} bytes expected at offset {}", where.path, where.offset + got, to.size(),
         where.offset);
  }
}

void write_all(const FileDescriptor& file, std::span<const std::byte> bytes, const std::string& path, ExitCode blame) {
  if (const int error = try_write(file.get(), bytes)) fail_errno(path, "write", blame, error, bytes.size());
}

FileDescriptor create_file(const std::string& path, ExitCode blame) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kNewFileMode));
  if (!file && errno != EEXIST) fail_errno(path, "create", blame, errno);
  return file;
}

FileDescriptor open_for_appending(const std::string& path, ExitCode blame) {
  make_directories(parent_directory(path), blame);
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, kNewFileMode));
  return require_regular(std::move(file), path, blame, errno);
}

bool is_at(const FileDescriptor& file, const std::string& path) noexcept {
  struct stat opened {
  }, named{};
  return ::fstat(file.get(), &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace lockstep
