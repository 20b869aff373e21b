#include "lockstep/train/step_trace.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "lockstep/base/clock.h"
#include "lockstep/base/trace.h"
#include "test/catch.h"
#include "test/train/json_rows.h"
#include "test/train/log_capture.h"
#include "test/train/world.h"

using namespace lockstep;
using testing::world;

namespace {

constexpr int64_t kWarmUp = 2;

void make_step(StepTrace& trace, int64_t step) {
  trace.begin_step(step);
  trace.enter(StepPart::compute);
  trace.enter(StepPart::reduce);
  trace.end_step();
}

// The spans of rank 0's file.
std::vector<nlohmann::json> spans_of(const std::string& path) {
  std::vector<nlohmann::json> spans;
  const auto trace = nlohmann::json::parse(read_text_file(path, ExitCode::internal));
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") spans.push_back(event);
  }
  return spans;
}

}  // namespace

TEST_CASE("a trace has the steps that were asked for, after the first two, of every rank") {
  const SharedFolder folder;
  const LogCapture log;
  StepTrace trace(world(), {.path = folder / "trace.json", .steps = 2, .wait_seconds = 30});
  int64_t step = 0;
  while (!trace.complete()) make_step(trace, ++step);
  CHECK(step == kWarmUp + 2);
  trace.write();
  CHECK_FALSE(trace.complete());
  make_step(trace, ++step);
  trace.write();  // once only
  if (!world().is_root()) return;
  std::set<std::pair<int, std::string>> steps;
  for (const auto& span : spans_of(folder / "trace.json")) {
    if (span["name"].get<std::string>().starts_with("step ")) {
      steps.emplace(span["pid"].get<int>(), span["name"].get<std::string>());
    }
  }
  CHECK(steps.size() == static_cast<size_t>(2 * world().size()));
  CHECK(steps.contains({world().size() - 1, "step 3"}));
  CHECK(steps.contains({0, "step 4"}));
}

TEST_CASE("the times of a trace count from the first beginning on any rank") {
  const SharedFolder folder;
  const LogCapture log;
  StepTrace trace(world(), {.path = folder / "trace.json", .steps = 1, .wait_seconds = 30});
  int64_t step = 0;
  while (step < kWarmUp) make_step(trace, ++step);
  const double before = monotonic_seconds();  // a reduction that is still under way when tracing begins
  make_step(trace, ++step);
  if (world().rank() == world().size() - 1) trace_operation("reduction", "early", before - 0.05, monotonic_seconds());
  trace.write();
  if (!world().is_root()) return;
  double least = 1e9;
  for (const auto& span : spans_of(folder / "trace.json")) {
    least = std::min(least, span["ts"].get<double>());
    if (span["name"] == "early") CHECK(span["ts"] == 0);
    if (span["name"] == "step 3") CHECK(span["ts"].get<double>() >= 50e3);
  }
  CHECK(least == 0);
}

TEST_CASE("a run without a trace, or with too few steps for one, writes none") {
  const SharedFolder folder;
  const LogCapture log;
  for (const int64_t steps : {0, 5}) {
    StepTrace trace(world(), {.path = folder / "trace.json", .steps = steps, .wait_seconds = 30});
    for (int64_t step = 1; step <= kWarmUp; ++step) make_step(trace, step);
    trace.write();
    if (world().is_root()) CHECK_FALSE(std::filesystem::exists(folder / "trace.json"));
  }
}
