// Creates and lists directories (io/file.h).
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "io/file_errors.h"
#include "lockstep/io/file.h"

namespace lockstep {

void fsync_directory(const std::string& path, ExitCode blame) {
  const FileDescriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) fail_errno(path, "open the directory", blame, errno);
  // Some network file systems order renames themselves and refuse to sync directories.
  if (::fsync(directory.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    fail_errno(path, "flush the directory to disk", blame, errno);
  }
}

int64_t free_bytes(const std::string& path) noexcept {
  struct statvfs status {};
  if (::statvfs(path.c_str(), &status) != 0) return -1;
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

void make_directories(const std::string& path, ExitCode blame) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && !std::filesystem::is_directory(path, error)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) fail(blame, "{}: cannot create the directory: {}", path, describe_no_directory(path, error.value()));
}

std::vector<std::string> list_directory(const std::string& path, ExitCode blame) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(path, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) fail_errno(path, "list the directory", blame, error.value());
  std::sort(names.begin(), names.end());
  return names;
}

bool path_exists(const std::string& path) noexcept {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

bool remove_file(const std::string& path) noexcept { return ::unlink(path.c_str()) == 0 || errno == ENOENT; }

std::string parent_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace lockstep
