#include "lockstep/observe/step_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

constexpr std::array<const char*, kStepParts> kPartNames = {"data", "compute", "reduce", "save"};

using Json = nlohmann::json;

const char* part_name(StepPart part) { return kPartNames[static_cast<size_t>(part)]; }

Json name_event(const char* what, int rank, int thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

// Returns one rank's events in the trace event format
// (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), separated by commas. Perfetto
// truncates fractions of microseconds, and it drops a span that ends even a nanosecond after its parent or starts
// before its predecessor has ended. Therefore both ends of a span are rounded to whole microseconds, and its duration
// is their difference.
std::string encode(std::vector<TraceSpan> spans, double origin, const ProcessGroup& group) {
  const auto micros = [&](double seconds) { return std::llround((seconds - origin) * 1e6); };
  // If two spans start at the same time, the outer one must come first.
  std::ranges::stable_sort(spans, [](const TraceSpan& a, const TraceSpan& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  const int rank = group.rank();
  std::string text = name_event("process_name", rank, 0, group.describe(rank)).dump();
  std::map<int, std::string> threads;
  for (const TraceSpan& span : spans) threads[span.number] = span.thread;
  for (const auto& [number, name] : threads) text += ",\n" + name_event("thread_name", rank, number, name).dump();
  for (const TraceSpan& span : spans) {
    text += fmt::format(",\n{{\"ph\":\"X\",\"name\":{},\"cat\":{},\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{}}}",
                        Json(span.name).dump(), Json(span.thread).dump(), rank, span.number, micros(span.begin),
                        micros(span.end) - micros(span.begin));
  }
  return text;
}

}  // namespace

void StepTrace::start_if_due() {
  if (options_.steps == 0 || ++seen_ <= kWarmUpSteps || started_ > 0) return;
  group_.barrier({"the trace"});
  started_ = monotonic_seconds();
  start_tracing();
  if (options_.profile) options_.profile->start();
}

void StepTrace::begin_step(int64_t step) {
  start_if_due();
  if (!tracing() && !span_observer()) return;
  step_name_ = fmt::format("step {}", step);
  step_span_.emplace(step_name_.c_str());
  part_ = StepPart::data;
  part_span_.emplace(part_name(part_));
}

void StepTrace::enter(StepPart part) {
  if (!part_span_ || part == part_) return;
  part_ = part;
  part_span_.emplace(part_name(part_));
}

void StepTrace::end_step() {
  part_span_.reset();
  step_span_.reset();
  if (started_ > 0) ++traced_;
}

int64_t StepTrace::write() {
  if (started_ == 0) return 0;
  if (options_.profile) options_.profile->stop();
  const std::vector<TraceSpan> spans = stop_tracing();
  if (!options_.path.empty()) write(spans);
  options_.steps = 0;
  started_ = 0;
  return traced_;
}

void StepTrace::write(const std::vector<TraceSpan>& spans) {
  const Timeout wait{"the trace"};
  // Ranks on one host share a clock. On other hosts, the time right after the barrier serves as the common origin.
  double first = started_;
  group_.broadcast(std::as_writable_bytes(std::span(&first, 1)), wait);
  const double origin = group_.host() == group_.host(0) ? first : started_;
  // Spans that were open at the origin started earlier, so the zero of the file is the earliest start on any rank.
  double lead = 0;
  for (const TraceSpan& span : spans) lead = std::max(lead, origin - span.begin);
  group_.all_reduce_max(std::span(&lead, 1), wait);
  const auto texts = group_.all_gather(encode(spans, origin - lead, group_), wait);
  if (!group_.is_root()) return;
  std::string file = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (size_t rank = 0; rank < texts.size(); ++rank) file += (rank > 0 ? ",\n" : "") + texts[rank];
  file += "\n]}\n";
  files_.post({.run =
                   [path = options_.path, steps = traced_, text = std::move(file)] {
                     try {
                       write_text_atomically(path, text, ExitCode::checkpoint);
                       log_info("trace of {} steps: {}", steps, path);
                     } catch (const Error& error) {
                       log_warning("the trace is not written: {}", error.what());
                     }
                   },
               .required = true});
}

}  // namespace lockstep
