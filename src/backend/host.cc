#include "backend/host.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "lockstep/backend/out_of_memory.h"
#include "lockstep/base/error.h"
#include "lockstep/base/host_memory.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

void unmap(void* data, size_t bytes) noexcept {
  if (munmap(data, bytes) != 0) log_warning("cannot give {} bytes of memory back: {}", bytes, errno_text(errno));
}

}  // namespace

Buffer HostBackend::allocate(size_t bytes) const {
  if (bytes == 0) return {};
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    throw OutOfMemory("memory", bytes, host_memory().available);
  }
  // Large pages make the first touch and every pass over an arena cheaper; without them, the kernel ignores the advice.
  (void)madvise(data, bytes, MADV_HUGEPAGE);
  return {data, bytes, unmap};
}

void HostBackend::copy(Stream&, void* to, const void* from, size_t bytes) const {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

std::unique_ptr<Stream> HostBackend::make_stream() const { return std::make_unique<HostStream>(); }

std::unique_ptr<Event> HostBackend::make_event() const { return std::make_unique<HostEvent>(); }

}  // namespace lockstep
