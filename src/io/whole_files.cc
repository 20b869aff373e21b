// Reads whole files (io/file.h).
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <limits>
#include <new>

#include "io/file_errors.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/printable.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

constexpr size_t kFirstBytes = size_t{64} << 10, kPieceBytes = size_t{8} << 20;  // sizes of reads from a stream

[[noreturn]] void fail_too_large(const std::string& path, ExitCode blame, int64_t limit) {
  fail(blame, "{}: has more than {} bytes, the most that are read here", path, limit);
}

// Waits for bytes with a deadline, because a named pipe may have no writer, or one that stalls.
void wait_for_bytes(const FileDescriptor& file, const std::string& path, const WholeRead& how) {
  pollfd waited{.fd = file.get(), .events = POLLIN, .revents = 0};
  const double end = monotonic_seconds() + how.quiet_seconds;
  int answer = 0;
  do {  // repeated after a signal, because reading a pipe without a writer would return its end
    const double left = std::max(end - monotonic_seconds(), 0.0);
    answer = ::poll(&waited, 1, static_cast<int>(std::ceil(left * 1000)));
  } while (answer < 0 && errno == EINTR);
  if (answer < 0) fail_errno(path, "wait for", how.blame, errno);
  if (answer != 0) return;
  struct stat status {};
  const mode_t mode = ::fstat(file.get(), &status) == 0 ? status.st_mode : 0;
  fail(how.blame, "{}: is {}, and nothing came from it for {:g} s; start what writes to it, or name a file",
       printable(path, PATH_MAX), kind_of_file(mode), how.quiet_seconds);
}

// Appends everything from the descriptor's position to the end.
template <class Content>
void read_stream(const FileDescriptor& file, Content& content, const std::string& path, const WholeRead& how) {
  for (size_t done = 0;;) {
    if (done == content.size()) content.resize(done + std::clamp(done, kFirstBytes, kPieceBytes));
    wait_for_bytes(file, path, how);
    const ssize_t got = ::read(file.get(), content.data() + done, content.size() - done);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) fail_errno(path, "read", how.blame, errno);
    done += static_cast<size_t>(got);
    if (static_cast<int64_t>(done) > how.limit) fail_too_large(path, how.blame, how.limit);
    if (got > 0) continue;
    content.resize(done);
    return;
  }
}

template <class Content>
Content read_whole(const std::string& path, WholeRead how) {
  const FileDescriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // so that opening a pipe does not wait
  if (!file) fail_errno(path, "open", how.blame, errno);
  const int64_t bytes = file_size(file, path, how.blame);
  Content content;
  if (bytes == 0) {
    how.limit = std::min(how.limit, kLargestStream);
    read_stream(file, content, path, how);
    return content;
  }
  if (bytes > how.limit) fail_too_large(path, how.blame, how.limit);
  content.resize(bytes);
  pread_all(file, std::as_writable_bytes(std::span(content)), {.path = path, .offset = 0, .blame = how.blame});
  return content;
}

}  // namespace

std::vector<std::byte> read_file(const std::string& path, ExitCode blame) {
  return read_whole<std::vector<std::byte>>(path, {.blame = blame, .limit = std::numeric_limits<int64_t>::max()});
}

std::vector<std::byte> read_regular_file(const std::string& path, ExitCode blame) {
  const FileDescriptor file = open_regular_file(path, blame);
  const int64_t size = file_size(file, path, blame);
  std::vector<std::byte> bytes;
  try {
    bytes.resize(size);
  } catch (const std::bad_alloc&) {
    fail(blame, "{}: its {} bytes do not fit in memory", printable(path), size);
  }
  pread_all(file, bytes, {.path = path, .offset = 0, .blame = blame});
  return bytes;
}

std::string read_text_file(const std::string& path, ExitCode blame, int64_t limit) {
  return read_text_file(path, {.blame = blame, .limit = limit});
}

std::string read_text_file(const std::string& path, const WholeRead& how) { return read_whole<std::string>(path, how); }

}  // namespace lockstep
