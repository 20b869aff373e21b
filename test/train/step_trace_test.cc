#include "lockstep/observe/step_trace.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/trace.h"
#include "test/catch.h"
#include "test/train/job.h"
#include "test/train/json_rows.h"
#include "test/train/log_capture.h"
#include "test/train/plain_source.h"
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

// Notes the spans of the thread that made it, by the spans that they lie in: "step 3/compute/forward".
class Spans final : public SpanObserver {
 public:
  Spans() { observe_spans(this); }
  ~Spans() override { observe_spans(nullptr); }
  void begin(const char* name) noexcept override {
    if (std::this_thread::get_id() != thread_) return;
    open_.push_back(open_.empty() ? name : open_.back() + '/' + name);
    ++seen[open_.back()];
  }
  void end() noexcept override {
    if (std::this_thread::get_id() == thread_) open_.pop_back();
  }
  std::map<std::string, int> seen;

 private:
  const std::thread::id thread_ = std::this_thread::get_id();
  std::vector<std::string> open_;
};

}  // namespace

TEST_CASE("a trace has the steps that were asked for, after the first two, of every rank") {
  const SharedDirectory directory;
  const LogCapture log;
  FileWorker files({.directory = "run"});
  StepTrace trace(world(), files, {.path = directory / "trace.json", .steps = 2});
  int64_t step = 0;
  while (!trace.complete()) make_step(trace, ++step);
  CHECK(step == kWarmUp + 2);
  trace.write();
  CHECK_FALSE(trace.complete());
  make_step(trace, ++step);
  trace.write();  // once only
  REQUIRE(files.finish(30));
  if (!world().is_root()) return;
  std::set<std::pair<int, std::string>> steps;
  for (const auto& span : spans_of(directory / "trace.json")) {
    if (span["name"].get<std::string>().starts_with("step ")) {
      steps.emplace(span["pid"].get<int>(), span["name"].get<std::string>());
    }
  }
  CHECK(steps.size() == static_cast<size_t>(2 * world().size()));
  CHECK(steps.contains({world().size() - 1, "step 3"}));
  CHECK(steps.contains({0, "step 4"}));
}

TEST_CASE("the times of a trace count from the first beginning on any rank") {
  const SharedDirectory directory;
  const LogCapture log;
  FileWorker files({.directory = "run"});
  StepTrace trace(world(), files, {.path = directory / "trace.json", .steps = 1});
  int64_t step = 0;
  while (step < kWarmUp) make_step(trace, ++step);
  const double before = monotonic_seconds();  // a reduction that is still under way when tracing begins
  make_step(trace, ++step);
  if (world().rank() == world().size() - 1) trace_operation("reduction", "early", before - 0.05, monotonic_seconds());
  trace.write();
  REQUIRE(files.finish(30));
  if (!world().is_root()) return;
  double least = 1e9;
  for (const auto& span : spans_of(directory / "trace.json")) {
    least = std::min(least, span["ts"].get<double>());
    if (span["name"] == "early") CHECK(span["ts"] == 0);
    if (span["name"] == "step 3") CHECK(span["ts"].get<double>() >= 50e3);
  }
  CHECK(least == 0);
}

TEST_CASE("a run without a trace, or with too few steps for one, writes none") {
  const SharedDirectory directory;
  const LogCapture log;
  FileWorker files({.directory = "run"});
  for (const int64_t steps : {0, 5}) {
    StepTrace trace(world(), files, {.path = directory / "trace.json", .steps = steps});
    for (int64_t step = 1; step <= kWarmUp; ++step) make_step(trace, step);
    trace.write();
    if (world().is_root()) CHECK_FALSE(std::filesystem::exists(directory / "trace.json"));
  }
}

TEST_CASE("the spans of a run nest: steps, their parts, the passes, the layers, and a captured step has none inside") {
  const SharedDirectory directory;
  const PlainSource data(24), validation(5);
  Config config = config_in(directory);
  config.train.epochs = 0;
  config.train.steps = 4;
  config.checkpoint.every_steps = 2;
  config.eval.every_epochs = 0;  // at the end alone
  config.device.deferred = GENERATE(false, true);
  INFO((config.device.deferred ? "on a device" : "on a CPU"));
  Spans spans;
  {
    Job job(config, data, &validation);
    REQUIRE(job.trainer->run() == RunEnd::finished);
  }
  for (const auto& [path, count] : spans.seen) UNSCOPED_INFO(path << ": " << count);
  const auto inside = [&](const std::string& path) {
    return std::ranges::count_if(spans.seen, [&](const auto& span) { return span.first.starts_with(path + "/"); });
  };
  const bool captures = config.device.deferred && world().size() == 1;
  for (const std::string step : {"step 1", "step 2", "step 3", "step 4"}) {
    INFO(step);
    CHECK(spans.seen[step] == 1);
    CHECK(spans.seen[step + "/data"] == 1);
    const bool replayed = captures && step == "step 4";  // captured once, as the third
    CHECK(spans.seen[step + "/compute/captured step"] == (captures && step >= "step 3" ? 1 : 0));
    CHECK(spans.seen[step + "/reduce"] == (replayed ? 0 : 1));
    CHECK(spans.seen[step + "/save"] == (replayed ? 0 : 1));
    CHECK(spans.seen[step + "/compute/update"] == (replayed ? 0 : 1));
    CHECK(spans.seen[step + "/compute/backward/bucket 1"] == (replayed ? 0 : 1));
    CHECK((inside(step + "/compute/forward") > 5) == !replayed);
    CHECK((inside(step + "/compute/backward") > 5) == !replayed);
    CHECK(inside(step + "/compute/captured step") == 0);
  }
  CHECK(spans.seen["step 2/compute/forward/conv1"] == 1);
  CHECK(spans.seen["evaluation"] == 1);
}
