// Which thread of this process does what from when to when, while somebody wants to know: for traces of a few steps,
// and for a profiler that is attached. Process-wide, as the log is. Where nobody does, a span costs two loads.
#pragma once

#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.h"

namespace lockstep {

// Times are monotonic_seconds().
struct TraceSpan {
  std::string name;
  std::string thread;  // its name (name_thread()) when it first traced something
  int number = 0;      // of the thread in the process
  double begin = 0, end = 0;
};

// Is called when each TraceScope begins and when it ends, on the thread of that scope, whether or not tracing is on;
// those of one thread nest. Any number of threads at once.
class SpanObserver {
 public:
  virtual ~SpanObserver() = default;
  virtual void begin(const char* name) noexcept = 0;
  virtual void end() noexcept = 0;
};

namespace trace_detail {
extern std::atomic<bool> tracing;
extern std::atomic<SpanObserver*> observer;
}  // namespace trace_detail

inline bool tracing() { return trace_detail::tracing.load(std::memory_order_relaxed); }
inline SpanObserver* span_observer() { return trace_detail::observer.load(std::memory_order_acquire); }

// From now on; null: nobody. It must live until the last span that began under it has ended.
void observe_spans(SpanObserver* observer);

void start_tracing();
// Everything since start_tracing() that has ended, in the order of the ends.
std::vector<TraceSpan> stop_tracing();

// What the calling thread has just done; dropped while tracing is off.
void trace_span(std::string_view name, double begin, double end);
// What went on by itself, on the row of that name, or on another when it overlaps with one there.
void trace_operation(std::string_view row, std::string_view name, double begin, double end);

// The lifetime of this object, if tracing was on when it began. `name` must live as long. Must end on the thread that
// it began on, after those that began later.
class TraceScope {
 public:
  explicit TraceScope(const char* name)
      : name_(name), observer_(span_observer()), begin_(tracing() ? monotonic_seconds() : 0) {
    if (observer_) observer_->begin(name);
  }
  ~TraceScope() {
    if (observer_) observer_->end();
    if (begin_ > 0) trace_span(name_, begin_, monotonic_seconds());
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  const char* name_;
  SpanObserver* observer_;
  double begin_;
};

}  // namespace lockstep
