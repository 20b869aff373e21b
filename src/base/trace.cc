#include "lockstep/base/trace.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

constexpr int kFirstOperationRow = 10'000;  // beyond the numbers of threads

struct TraceState {
  std::mutex mutex;
  std::vector<TraceSpan> spans;
  std::vector<TraceSpan> operations;  // rows are assigned at the end
};

TraceState& state() {
  static TraceState* instance = new TraceState;  // never destroyed: threads may trace while statics are destroyed
  return *instance;
}

std::string own_name() {
  std::array<char, 16> name{};  // as long as one may be
  ::pthread_getname_np(::pthread_self(), name.data(), name.size());
  return name.data();
}

struct Thread {
  std::string name = own_name();
  int number = [] {
    static std::atomic<int> threads{0};
    return threads++;
  }();
};

Thread& this_thread() {
  thread_local Thread thread;
  return thread;
}

// Assigns overlapping spans of one name to different rows, as few as possible.
void give_rows(std::vector<TraceSpan>& operations) {
  std::ranges::sort(operations, {}, &TraceSpan::begin);
  std::map<std::string, std::vector<std::pair<int, double>>> rows;  // number, and the end of its last span
  int next = kFirstOperationRow;
  for (TraceSpan& span : operations) {
    auto& lanes = rows[span.thread];
    auto lane = std::ranges::find_if(lanes, [&](const auto& l) { return l.second <= span.begin; });
    if (lane == lanes.end()) lane = lanes.insert(lanes.end(), {next++, 0.0});
    span.number = lane->first;
    lane->second = span.end;
  }
}

}  // namespace

std::atomic<bool> trace_detail::tracing{false};
std::atomic<SpanObserver*> trace_detail::observer{nullptr};

void observe_spans(SpanObserver* observer) { trace_detail::observer.store(observer, std::memory_order_release); }

void start_tracing() {
  const std::lock_guard lock(state().mutex);
  state().spans.clear();
  state().operations.clear();
  trace_detail::tracing = true;
}

std::vector<TraceSpan> stop_tracing() {
  const std::lock_guard lock(state().mutex);
  trace_detail::tracing = false;
  std::vector<TraceSpan> spans = std::exchange(state().spans, {});
  std::vector<TraceSpan> operations = std::exchange(state().operations, {});
  give_rows(operations);
  spans.insert(spans.end(), std::make_move_iterator(operations.begin()), std::make_move_iterator(operations.end()));
  return spans;
}

void trace_span(std::string_view name, double begin, double end) {
  const Thread& thread = this_thread();
  const std::lock_guard lock(state().mutex);
  if (tracing()) state().spans.push_back({std::string(name), thread.name, thread.number, begin, end});
}

void trace_operation(std::string_view row, std::string_view name, double begin, double end) {
  if (!tracing()) return;
  const std::lock_guard lock(state().mutex);
  if (tracing()) state().operations.push_back({std::string(name), std::string(row), 0, begin, end});
}

}  // namespace lockstep
