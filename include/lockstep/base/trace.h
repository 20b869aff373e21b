// Records what each thread of this process does and when, for traces of a few steps and for an attached profiler.
// Process-wide, like the log. While neither is active, a span costs two loads.
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

// Called when each TraceScope begins and when it ends, on the thread of that scope, whether or not tracing is on.
// Scopes of one thread nest. Several threads may call at the same time.
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

// Sets the observer of later spans; null: none. It must live until the last span that it saw begin has ended.
void observe_spans(SpanObserver* observer);

void start_tracing();
// Returns the spans that have ended since start_tracing(), in the order of their ends.
std::vector<TraceSpan> stop_tracing();

// Records what the calling thread has just done; does nothing while tracing is off.
void trace_span(std::string_view name, double begin, double end);
// Records an asynchronous operation in this row, or in another one if it overlaps with an operation there.
void trace_operation(std::string_view row, std::string_view name, double begin, double end);

// Records the lifetime of this object, if tracing is on when it begins. `name` must live as long. It must end on the
// thread on which it began, after scopes that began later.
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
