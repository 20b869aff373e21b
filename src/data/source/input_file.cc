#include "data/source/input_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep {

InputFile::InputFile(std::string path) : path_(std::move(path)), descriptor_(open_regular_file(path_, ExitCode::data)) {
  struct stat status = {};
  if (::fstat(descriptor_.get(), &status) != 0) fail(ExitCode::data, "{}: {}", path_, errno_text(errno));
  size_bytes_ = status.st_size;
  modified_ns_ = status.st_mtim.tv_sec * 1'000'000'000LL + status.st_mtim.tv_nsec;
}

std::string InputFile::name() const { return path_.substr(path_.rfind('/') + 1); }

void InputFile::read(int64_t offset, std::span<std::byte> bytes) const {
  pread_all(descriptor_, bytes, {.path = path_, .offset = offset, .blame = ExitCode::data});
}

std::optional<InputFile> open_or_leave_out(const std::string& path, BadRecords policy) {
  try {
    return InputFile(path);
  } catch (const Error& error) {
    if (policy == BadRecords::fail) throw;
    if (log_rank() == 0) log_warning("{}; left out with all that it holds", error.what());
    return std::nullopt;
  }
}

void allow_open_files(size_t files) {
  constexpr rlim_t kReserve = 256;  // for libraries, sockets and logs
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(files + kReserve, limit.rlim_max);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // if it fails, opening the files reports it
}

}  // namespace lockstep
