// The memory of the fake device, and the host memory that is pinned for it. Device memory is closed whenever the host
// has waited for something, until device work runs again: a host that touches it crashes, with a message. New memory
// holds NaN, a page that nobody may touch lies on either side of each allocation, and freed memory is never handed out
// again, so what uses it crashes.
#pragma once

#include <cstddef>
#include <string>

namespace lockstep::fake_gpu {

// Null when there is none left. Aligned as CUDA's is, to 256 bytes.
void* allocate_device_memory(size_t bytes);
void* allocate_pinned_memory(size_t bytes);

// What is wrong with giving it back, or nothing: it is no allocation, or bytes behind its end were written.
std::string free_device_memory(void* data);
std::string free_pinned_memory(void* data);

// Of a pinned allocation, 0 where there is none.
size_t pinned_bytes(const void* data);

enum class MemoryKind { pageable, pinned, device };
MemoryKind kind_of(const void* data);

// What is wrong with device work that uses these bytes of device memory, or nothing. `pinned`: pinned memory is also
// right.
std::string trouble_with(const void* data, size_t bytes, bool pinned = false);

// Device work may touch device memory while one of these lives, and leaves it open, since closing takes long; `what`
// names the work if it crashes.
class OpenMemory {
 public:
  explicit OpenMemory(const char* what);
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;
  ~OpenMemory();

 private:
  const char* before_;
};

// Unless work runs on another thread.
void close_device_memory();

}  // namespace lockstep::fake_gpu
