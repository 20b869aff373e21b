// Which thread of this process does what from when to when, while somebody wants to know: for traces of a few steps.
// Process-wide, as the log is. While tracing is off, a span costs one relaxed load.
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

namespace trace_detail {
extern std::atomic<bool> tracing;
}

inline bool tracing() { return trace_detail::tracing.load(std::memory_order_relaxed); }

void start_tracing();
// Everything since start_tracing() that has ended, in the order of the ends.
std::vector<TraceSpan> stop_tracing();

// What the calling thread has just done; dropped while tracing is off.
void trace_span(std::string_view name, double begin, double end);
// What went on by itself, on the row of that name, or on another when it overlaps with one there.
void trace_operation(std::string_view row, std::string_view name, double begin, double end);

// The lifetime of this object, if tracing was on when it began. `name` must live as long.
class TraceScope {
 public:
  explicit TraceScope(std::string_view name) : name_(name), begin_(tracing() ? monotonic_seconds() : 0) {}
  ~TraceScope() {
    if (begin_ > 0) trace_span(name_, begin_, monotonic_seconds());
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  std::string_view name_;
  double begin_;
};

}  // namespace lockstep
