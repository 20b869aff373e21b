// Measures where the time of training steps goes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/base/trace.h"

namespace lockstep {

// The time of one kind of span, without that of the spans inside it.
struct SpanTime {
  std::vector<std::string> path;  // "step", "compute", "forward", "conv1"; empty: between steps
  int64_t count = 0;              // of spans, over all steps
  double seconds = 0;             // sum over all steps
};

// Times the trace spans of the thread that made it by events on the stream to which they enqueue, so that the times are
// those of the device. Every moment between start() and stop() belongs to exactly one kind of span.
class StepProfile final : public SpanObserver {
 public:
  // Both must outlive this object.
  StepProfile(const Backend& backend, Stream& stream) : backend_(backend), stream_(stream) {}
  ~StepProfile() override;
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  // Does nothing while spans have another observer, such as an attached profiler. To be called outside of all spans.
  void start();
  void stop();
  void begin(const char* name) noexcept override;
  void end() noexcept override;

  // Waits for the stream and returns the times of everything up to stop(). May be called once.
  std::vector<SpanTime> times();

 private:
  struct Mark {
    std::unique_ptr<Event> event;
    size_t kind;  // of the time that begins here
  };
  void mark(size_t kind);

  const Backend& backend_;
  Stream& stream_;
  const std::thread::id thread_ = std::this_thread::get_id();
  bool running_ = false;
  std::vector<SpanTime> kinds_ = {{}};
  std::map<std::pair<size_t, std::string>, size_t> inner_;  // kind of a span by the kind around it and its name
  std::vector<size_t> open_ = {0};
  std::vector<Mark> marks_;
};

}  // namespace lockstep
