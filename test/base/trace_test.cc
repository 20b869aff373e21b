#include "lockstep/base/trace.h"

#include <string>
#include <thread>

#include "lockstep/base/thread_name.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

// Notes what it is told.
class Notes final : public SpanObserver {
 public:
  void begin(const char* name) noexcept override { text += std::string("<") + name; }
  void end() noexcept override { text += ">"; }
  std::string text;
};

}  // namespace

TEST_CASE("spans are kept from the start of tracing to its end") {
  { const TraceScope before("before"); }
  {
    const TraceScope across("across");
    start_tracing();
  }
  {
    const TraceScope outer("outer");
    const TraceScope inner("inner");
  }
  const auto spans = stop_tracing();
  { const TraceScope after("after"); }
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].name == "inner");
  CHECK(spans[1].name == "outer");
  CHECK(spans[1].begin <= spans[0].begin);
  CHECK(spans[0].end <= spans[1].end);
  CHECK(spans[0].number == spans[1].number);
  start_tracing();
  CHECK(stop_tracing().empty());
}

TEST_CASE("each thread has a number, and the name that it was given") {
  start_tracing();
  trace_span("here", 1, 2);
  std::thread([] {
    name_thread("loader");
    trace_span("there", 1, 2);
  }).join();
  const auto spans = stop_tracing();
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].thread != "loader");
  CHECK(spans[1].thread == "loader");
  CHECK(spans[0].number != spans[1].number);
}

TEST_CASE("operations that overlap have rows of their own") {
  start_tracing();
  trace_operation("reduction", "first", 1, 4);
  trace_operation("reduction", "third", 4, 6);
  trace_operation("reduction", "second", 2, 5);
  trace_operation("copy", "other", 1, 2);
  const auto spans = stop_tracing();
  REQUIRE(spans.size() == 4);
  const auto row_of = [&](const std::string& name) {
    for (const TraceSpan& span : spans) {
      if (span.name == name) return span.number;
    }
    return -1;
  };
  CHECK(row_of("first") == row_of("third"));
  CHECK(row_of("first") != row_of("second"));
  CHECK(row_of("other") != row_of("first"));
  CHECK(row_of("other") != row_of("second"));
}

TEST_CASE("an observer is called as each span begins and ends, whether or not tracing is on") {
  Notes notes;
  observe_spans(&notes);
  CHECK(span_observer() == &notes);
  {
    const TraceScope outer("outer");
    CHECK(notes.text == "<outer");
    { const TraceScope inner("inner"); }
    start_tracing();
    { const TraceScope traced("traced"); }
    observe_spans(nullptr);
    const TraceScope after("after");
  }
  CHECK(notes.text == "<outer<inner><traced>>");
  CHECK(stop_tracing().size() == 2);  // that, and what came after
}
