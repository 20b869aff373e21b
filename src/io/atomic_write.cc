// Writes files that appear under their name only when they are complete (io/file.h).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "io/file_errors.h"
#include "io/file_transfer.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp";

// Direct I/O requires addresses, offsets and lengths that are multiples of this. A file system that requires more fails
// with EINVAL.
constexpr size_t kDirectBytes = 4096;

struct alignas(kDirectBytes) DirectBlock {
  std::byte bytes[kDirectBytes];
};

// Turns on direct I/O, so that the kernel copies nothing and keeps in the page cache what other programs read. Returns
// false if the file system does not support it.
bool set_direct(int descriptor, bool direct) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && ::fcntl(descriptor, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

// Writes a file from its start, with direct I/O as far as the address and the file system allow.
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

// Owns a temporary file beside `path`; removes it unless it has been published.
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

}  // namespace

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
  // Otherwise the kernel would compare the pages that it was given with themselves.
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
  check(temporary.try_close(), "close");  // NFS reports a full disk only now
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

}  // namespace lockstep
