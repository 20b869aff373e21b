// The CUDA runtime of the fake device: events, and the times that they keep.
#include <fmt/format.h>

#include <memory>
#include <set>
#include <utility>

#include "test/fake_gpu/runtime.h"

namespace lockstep::fake_gpu {
namespace {

// Those that live, with the device's lock.
std::set<Event*>& events() {
  static auto* const instance = new std::set<Event*>;
  return *instance;
}

// Throws Refused if there is no such event.
Event& event_of(cudaEvent_t handle) {
  auto* const event = reinterpret_cast<Event*>(handle);
  if (!events().contains(event)) throw Refused(cudaErrorInvalidResourceHandle, "an event that is not there");
  return *event;
}

}  // namespace
}  // namespace lockstep::fake_gpu

using namespace lockstep::fake_gpu;

extern "C" {

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return call([&](Lock&) {
    if (flags != 0) throw Refused(cudaErrorInvalidValue, fmt::format("cudaStreamWaitEvent with flags {:#x}", flags));
    wait_for(stream_of(stream), event_of(event));
  });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call([&](Lock&) {
    if ((flags & ~(cudaEventBlockingSync | cudaEventDisableTiming)) != 0) {
      throw Refused(cudaErrorInvalidValue, fmt::format("cudaEventCreateWithFlags with flags {:#x}", flags));
    }
    auto made = std::make_unique<Event>();
    if ((flags & cudaEventDisableTiming) == 0) made->reached = std::make_shared<double>(-1);
    events().insert(made.get());
    *event = reinterpret_cast<cudaEvent_t>(made.release());
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&](Lock&) {
    const std::unique_ptr<Event> destroyed(&event_of(event));
    events().erase(destroyed.get());
  });
}
// By the host's clock that is how long the fake took (see Device::seconds).
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  return call([&](Lock&) {
    double seconds[2];
    for (const auto& [event, at] : {std::pair(&event_of(start), 0), std::pair(&event_of(stop), 1)}) {
      expect_not_captured(*event, "cudaEventElapsedTime");
      if (!event->reached) throw Refused(cudaErrorInvalidResourceHandle, "an event without timing");
      if (!event->work) throw Refused(cudaErrorInvalidResourceHandle, "an event that was not recorded");
      if (event->work->state != Work::State::done) throw Refused(cudaErrorNotReady, "an event that is yet to come");
      seconds[at] = *event->reached;
    }
    *milliseconds = static_cast<float>((seconds[1] - seconds[0]) * 1e3);
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call([&](Lock&) {
    if (const auto reached = event_of(event).reached; reached && !stream_of(stream).capture) {
      submit(stream_of(stream), {.what = "an event's time", .run = [reached] { *reached = Device::get().seconds(); }});
    }
    record(stream_of(stream), event_of(event));
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&](Lock&) {
    expect_not_captured(event_of(event), "cudaEventQuery");
    expect_no_capture("cudaEventQuery");
    if (!Device::get().query(event_of(event).work)) throw Refused(cudaErrorNotReady, "not ready");
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&](Lock& lock) {
    expect_not_captured(event_of(event), "cudaEventSynchronize");
    expect_no_capture("cudaEventSynchronize");
    Device::get().wait(lock, event_of(event).work);
  });
}
}
