#include "io/file_transfer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep {

int try_write(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min(bytes.size(), kPieceBytes));
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes = bytes.subspan(written);
  }
  return 0;
}

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

}  // namespace lockstep
