#include "data/input_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

void FileDescriptorTraits::destroy(int fd) noexcept { ::close(fd); }

InputFile::InputFile(std::string path)
    : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (!descriptor_) {
    const int error = errno;
    const char* hint = error == EMFILE ? " (raise the limit with ulimit -n)" : "";
    fail(ExitCode::data, "{}: cannot be opened: {}{}", path_, errno_text(error), hint);
  }
  struct stat status = {};
  if (::fstat(descriptor_.get(), &status) != 0) fail(ExitCode::data, "{}: {}", path_, errno_text(errno));
  if (!S_ISREG(status.st_mode)) fail(ExitCode::data, "{}: is not a file", path_);
  size_bytes_ = status.st_size;
  modified_ns_ = status.st_mtim.tv_sec * 1'000'000'000LL + status.st_mtim.tv_nsec;
}

std::string InputFile::name() const { return path_.substr(path_.rfind('/') + 1); }

void InputFile::read(int64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(descriptor_.get(), bytes.data(), bytes.size(), offset);
    if (got < 0) {
      if (errno == EINTR) continue;
      fail(ExitCode::data, "{}: cannot be read at offset {}: {}", path_, offset, errno_text(errno));
    }
    if (got == 0) fail(ExitCode::data, "{}: ends at offset {}: it became shorter since it was opened", path_, offset);
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += got;
  }
}

void allow_open_files(size_t files) {
  constexpr rlim_t kReserve = 256;  // libraries, sockets, logs
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(files + kReserve, limit.rlim_max);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // where this fails, open() says so with a hint
}

}  // namespace lockstep
