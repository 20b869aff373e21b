#include "io/file_errors.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "lockstep/io/file.h"

namespace lockstep {
namespace {

// Returns the nearest directory above `path` that exists.
std::string existing_parent(std::string path) {
  do {
    path = parent_directory(path);
  } while (!path_exists(path) && path != "." && path != "/");
  return path;
}

// Says how much space a write of `needed` bytes lacks; empty if the error has another cause.
std::string describe_shortage(const std::string& path, size_t needed, int error) {
  if (error == EDQUOT) {
    return fmt::format(
        "; {} bytes needed, and a quota of this user, group or project is used up, however much the file "
        "system has left (see quota -s)",
        needed);
  }
  if (error != ENOSPC && error != EFBIG) return {};
  struct statvfs status {};
  const std::string directory = existing_parent(path);
  if (error == ENOSPC && ::statvfs(directory.c_str(), &status) == 0 && status.f_files > 0 && status.f_favail == 0) {
    return fmt::format("; all {} inodes of this file system are used up: delete files, however small", status.f_files);
  }
  return fmt::format("; {} bytes needed, {} bytes free on this file system", needed, free_bytes(directory));
}

}  // namespace

void fail_errno(const std::string& path, std::string_view action, ExitCode blame, int error, size_t needed) {
  fail(blame, "{}: cannot {}: {}{}", path, action, errno_text(error), describe_shortage(path, needed, error));
}

std::string_view kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "no regular file";
}

std::string describe_no_directory(const std::string& path, int error) {
  std::filesystem::path way;
  for (const std::filesystem::path& part : std::filesystem::path(path)) {
    way /= part;
    std::error_code none;
    if (!std::filesystem::is_symlink(way, none) || std::filesystem::exists(way, none)) continue;
    return fmt::format("{} is a symbolic link to {}, which does not exist", way.string(),
                       std::filesystem::read_symlink(way, none).string());
  }
  return errno_text(error) + describe_shortage(path, 0, error);
}

}  // namespace lockstep
