#include "lockstep/io/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "io/file_errors.h"
#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

// Bounds the time one system call holds an inode lock and keeps progress visible to tools that watch the process.
constexpr size_t kPieceBytes = size_t{8} << 20;

constexpr std::string_view kTemporaryMark = ".tmp";

// Of every file that is made here.
constexpr mode_t kNewFileMode = 0666;

// The nearest directory above `path` that exists.
std::string existing_parent(std::string path) {
  do {
    path = parent_directory(path);
  } while (!path_exists(path) && path != "." && path != "/");
  return path;
}

// What a write of `needed` bytes lacks; empty where the error has another cause.
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

// Why a directory cannot be made where a symbolic link on the way to it leads nowhere; else the system's reason.
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

// What transfers past the page cache must be multiples of, in memory and in the file. Enough for common file systems;
// one that wants more says EINVAL.
constexpr size_t kDirectBytes = 4096;

struct alignas(kDirectBytes) DirectBlock {
  std::byte bytes[kDirectBytes];
};

// Past the page cache: the kernel copies nothing, and what others read stays in memory. False where it is not offered.
bool set_direct(int descriptor, bool direct) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && ::fcntl(descriptor, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

// 0 or the errno of the failing call.
int try_write(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min(bytes.size(), kPieceBytes));
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return 0;
}

// Writes a file from its start, past the page cache as far as the address and the file system allow.
int try_write_file(int descriptor, std::span<const std::byte> bytes) {
  const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % kDirectBytes == 0;
  const auto whole_blocks = bytes.first(aligned ? bytes.size() / kDirectBytes * kDirectBytes : 0);
  if (!whole_blocks.empty() && set_direct(descriptor, true)) {
    const int error = try_write(descriptor, whole_blocks);
    set_direct(descriptor, false);
    if (error == 0) return try_write(descriptor, bytes.subspan(whole_blocks.size()));
    if (error != EINVAL) return error;
    if (::lseek(descriptor, 0, SEEK_SET) < 0) return errno;
  }
  return try_write(descriptor, bytes);
}

// Bytes read before the end of the file; -1 with errno on failure.
int64_t try_pread(int descriptor, std::span<std::byte> to, int64_t offset) {
  size_t done = 0;
  while (done < to.size()) {
    const size_t piece = std::min(to.size() - done, kPieceBytes);
    const ssize_t got = ::pread(descriptor, to.data() + done, piece, offset + static_cast<int64_t>(done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return -1;
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return static_cast<int64_t>(done);
}

// A temporary file beside `path`, removed unless published.
class Temporary {
 public:
  Temporary(const std::string& path, ExitCode blame) {
    for (int n = 0;; ++n) {
      name_ = path + std::string(kTemporaryMark);
      if (n > 0) name_ += fmt::format(".{}", n);
      file_.reset(::open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kNewFileMode));
      if (file_) return;
      const int error = errno;
      const std::string name = std::exchange(name_, {});
      if (error != EEXIST || n == 1000) fail_errno(name, "create", blame, error);
    }
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() { discard(); }

  void discard() noexcept {
    file_.reset();
    if (!name_.empty()) remove_file(name_);
    name_.clear();
  }
  const FileDescriptor& file() const { return file_; }
  const std::string& name() const { return name_; }

  int try_close() { return ::close(file_.release()) == 0 || errno == EINTR ? 0 : errno; }
  int try_publish(const std::string& path) {
    if (::rename(name_.c_str(), path.c_str()) != 0) return errno;
    name_.clear();
    return 0;
  }

 private:
  std::string name_;
  FileDescriptor file_;
};

// What ::open() with O_NONBLOCK returned, which changes nothing for a regular file; `error`: its errno.
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

void fail_errno(const std::string& path, std::string_view action, ExitCode blame, int error, size_t needed) {
  fail(blame, "{}: cannot {}: {}{}", path, action, errno_text(error), describe_shortage(path, needed, error));
}

std::string_view kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISCHR(mode) || S_ISBLK(mode) ? "a device" : "no regular file";
}

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

bool reads_back(const FileDescriptor& file, std::span<const std::byte> bytes) {
  std::vector<DirectBlock> piece(kPieceBytes / sizeof(DirectBlock));
  const std::span<std::byte> to = std::as_writable_bytes(std::span(piece));
  size_t done = 0;
  const auto next_matches = [&](size_t end) {
    const size_t length = std::min(to.size(), end - done);
    errno = 0;
    if (try_pread(file.get(), to.first(length), static_cast<int64_t>(done)) != static_cast<int64_t>(length))
      return false;
    if (std::memcmp(to.data(), bytes.data() + done, length) != 0) return false;
    done += length;
    return true;
  };
  // The kernel would otherwise answer from the very pages it was given.
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (set_direct(file.get(), true)) {
    const size_t whole_blocks = bytes.size() / kDirectBytes * kDirectBytes;
    while (done < whole_blocks && next_matches(whole_blocks)) continue;
    const bool refused = errno == EINVAL;
    set_direct(file.get(), false);
    if (done < whole_blocks && !refused) return false;
  }
  while (done < bytes.size()) {
    if (!next_matches(bytes.size())) return false;
  }
  std::byte beyond{};
  return try_pread(file.get(), {&beyond, 1}, static_cast<int64_t>(bytes.size())) == 0;
}

void write_file_atomically(const std::string& path, std::span<const std::byte> bytes, const AtomicWrite& options) {
  Temporary temporary(path, options.blame);
  const auto check = [&](int error, std::string_view action) {
    if (error == 0) return;
    temporary.discard();
    fail_errno(path, action, options.blame, error, bytes.size());
  };
  check(try_write_file(temporary.file().get(), bytes), "write");
  if (options.flush) check(::fsync(temporary.file().get()) == 0 ? 0 : errno, "flush to disk");
  if (options.verify && !reads_back(temporary.file(), bytes)) {
    temporary.discard();
    fail(options.blame, "{}: what was written reads back differently; the disk or its driver is faulty", path);
  }
  check(temporary.try_close(), "close");  // NFS reports a full disk here
  check(temporary.try_publish(path), "rename the finished file into place");
  if (options.flush) fsync_directory(parent_directory(path), options.blame);
}

void write_text_atomically(const std::string& path, std::string_view text, ExitCode blame) {
  write_file_atomically(path, std::as_bytes(std::span(text)), {.blame = blame});
}

bool is_temporary_name(std::string_view name) {
  const size_t mark = name.rfind(kTemporaryMark);
  if (mark == std::string_view::npos) return false;
  const std::string_view rest = name.substr(mark + kTemporaryMark.size());
  if (rest.empty()) return true;
  return rest.size() > 1 && rest[0] == '.' && rest.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

void replace_symlink(const SymlinkPaths& paths, ExitCode blame) {
  const std::string temporary = paths.link + std::string(kTemporaryMark);
  remove_file(temporary);
  if (::symlink(paths.target.c_str(), temporary.c_str()) != 0) fail_errno(paths.link, "create the link", blame, errno);
  if (::rename(temporary.c_str(), paths.link.c_str()) != 0) {
    const int error = errno;
    remove_file(temporary);
    fail_errno(paths.link, "replace the link", blame, error);
  }
}

void fsync_directory(const std::string& path, ExitCode blame) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) fail_errno(path, "open the folder", blame, errno);
  // Some network file systems order renames themselves and refuse to sync folders.
  if (::fsync(folder.get()) != 0 && errno != EINVAL && errno != ENOTSUP) {
    fail_errno(path, "flush the folder to disk", blame, errno);
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
  if (error) fail(blame, "{}: cannot create the folder: {}", path, describe_no_directory(path, error.value()));
}

std::vector<std::string> list_directory(const std::string& path, ExitCode blame) {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(path, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error) fail_errno(path, "list the folder", blame, error.value());
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
