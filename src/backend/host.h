// The common parts of the backends that compute on the CPU: memory, copies and the stream.
#pragma once

#include <memory>

#include "lockstep/backend/backend.h"
#include "lockstep/base/clock.h"

namespace lockstep {

// Kernels of a CPU have finished when run() returns, so there is nothing to wait for.
class HostEvent final : public Event {
 public:
  bool passed() const override { return true; }
  void wait() const override {}
  double seconds_since(const Event& earlier) const override {
    return passed_at - static_cast<const HostEvent&>(earlier).passed_at;
  }

  double passed_at = 0;
};

class HostStream final : public Stream {
 public:
  void wait() override {}
  void record(Event& event) override { static_cast<HostEvent&>(event).passed_at = monotonic_seconds(); }
  void wait_for(const Event&) override {}
};

// The memory functions of backends whose kernels read and write host memory. Any thread may call them.
class HostBackend : public Backend {
 public:
  // Whole pages from the kernel: zeroed when first touched, so only the used part of an arena takes memory.
  // Throws OutOfMemory. The buffer of 0 bytes is empty.
  Buffer allocate(size_t bytes) const final;
  Buffer allocate_pinned(size_t bytes) const final { return allocate(bytes); }
  bool host_addressable() const final { return true; }
  void copy(Stream& stream, void* to, const void* from, size_t bytes) const final;
  std::unique_ptr<Stream> make_stream() const final;
  std::unique_ptr<Event> make_event() const final;
  std::unique_ptr<Event> make_timed_event() const final { return make_event(); }
};

}  // namespace lockstep
