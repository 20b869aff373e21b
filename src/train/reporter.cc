#include "lockstep/train/reporter.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/train/host_state.h"
#include "train/bad_records.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBarColumns = 100;
constexpr size_t kListedRecords = 100;  // in the log; metrics.jsonl has all

// Paths in it may hold bytes that are no UTF-8.
std::string json_line(const Json& row) { return row.dump(-1, ' ', false, Json::error_handler_t::replace); }

// A rank's own work is what it does while the others wait for it: reading and computing, not waiting.
struct Slowest {
  int rank = 0;
  double lag_seconds = 0;  // beyond the median rank
};

Slowest find_slowest(std::vector<int64_t> work_us) {
  const auto most = std::max_element(work_us.begin(), work_us.end());
  const auto rank = static_cast<int>(most - work_us.begin());
  const int64_t largest = *most;
  const auto middle = work_us.begin() + static_cast<std::ptrdiff_t>((work_us.size() - 1) / 2);
  std::nth_element(work_us.begin(), middle, work_us.end());
  return {rank, static_cast<double>(largest - *middle) * 1e-6};
}

std::string percent(int64_t part, int64_t whole) {
  return fmt::format("{:.2f} % ({}/{})", whole ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0,
                     part, whole);
}

}  // namespace

Reporter::Reporter(ProcessGroup& group, ReporterOptions options)
    : group_(group),
      options_(std::move(options)),
      metrics_(group.is_root() ? options_.jsonl : std::string(), options_.resumed_step),
      events_(group.is_root() ? options_.events : std::string(), options_.resumed_step) {}

void Reporter::interval(ProgressRow row, const StepTimer& timer) {
  const auto steps = static_cast<double>(timer.steps());
  auto mean = [&](StepPart part) { return timer.seconds(part) / steps; };
  row.data_seconds = mean(StepPart::data);
  row.compute_seconds = mean(StepPart::compute);
  row.reduce_seconds = mean(StepPart::reduce);
  row.save_seconds = mean(StepPart::save);
  row.seconds_per_step = timer.total_seconds() / steps;
  row.examples_per_second = static_cast<double>(timer.samples()) / timer.total_seconds();
  if (group_.size() > 1) {
    const auto own_us = static_cast<int64_t>((row.data_seconds + row.compute_seconds) * 1e6);
    const Slowest slowest =
        find_slowest(group_.allgather(std::span(&own_us, 1), {"the log line", options_.wait_seconds}));
    row.slowest_rank = fmt::format("{}@{}", slowest.rank, group_.host(slowest.rank));
    row.slowest_lag_seconds = slowest.lag_seconds;
  }
  if (!group_.is_root()) return;
  if (options_.on_interval) {
    options_.on_interval(row);
  } else if (options_.bar) {
    log_status(progress_bar(row, kBarColumns));
  } else {
    log_line(LogLevel::info, training_line(log_timestamp_now(), row));
  }
  Json json = {{"kind", "train"},
               {"step", row.step},
               {"epoch", row.epoch},
               {"loss", row.loss},
               {"lr", row.learning_rate},
               {"examples_per_second", row.examples_per_second},
               {"seconds_per_step", row.seconds_per_step},
               {"data_seconds", row.data_seconds},
               {"compute_seconds", row.compute_seconds},
               {"reduce_seconds", row.reduce_seconds},
               {"save_seconds", row.save_seconds}};
  if (!row.slowest_rank.empty()) json["slowest_rank"] = row.slowest_rank;
  metrics_.write(json_line(json));
  EventFile::Scalars scalars = {{"train/learning_rate", row.learning_rate},
                                {"train/epoch", row.epoch},
                                {"speed/examples_per_second", row.examples_per_second},
                                {"speed/seconds_per_step", row.seconds_per_step},
                                {"speed/data_seconds", row.data_seconds},
                                {"speed/compute_seconds", row.compute_seconds},
                                {"speed/reduce_seconds", row.reduce_seconds},
                                {"speed/save_seconds", row.save_seconds}};
  if (!std::isnan(row.loss)) scalars.emplace_back("train/loss", row.loss);
  events_.scalars(row.step, scalars);
}

void Reporter::evaluation(int64_t step, double epoch, std::span<const EvaluationResult> results) {
  if (!group_.is_root()) return;
  // A run evaluates again at the step it goes on from: one that had ended, or stopped where it was to evaluate.
  const bool again = step == options_.resumed_step && metrics_.drop("eval", step);
  for (const EvaluationResult& r : results) {
    const char* weights = r.weights == Weights::raw ? "raw" : "ema";
    log_info("evaluation at step {} ({} weights): top-1 {}, top-5 {}, loss {:.4f}{}", step, weights,
             percent(r.top1, r.examples), percent(r.top5, r.examples), r.loss,
             r.auc ? fmt::format(", AUC {:.5f}", *r.auc) : "");
    Json json = {{"kind", "eval"},
                 {"step", step},
                 {"epoch", epoch},
                 {"weights", weights},
                 {"top1", r.top1_fraction()},
                 {"top5", r.top5_fraction()},
                 {"loss", r.loss},
                 {"examples", r.examples}};
    if (r.auc) json["auc"] = *r.auc;
    metrics_.write(json_line(json));
    if (again) continue;
    const std::string group = r.weights == Weights::raw ? "evaluation/" : "evaluation_ema/";
    EventFile::Scalars scalars = {
        {group + "top1", r.top1_fraction()}, {group + "top5", r.top5_fraction()}, {group + "loss", r.loss}};
    if (r.auc) scalars.emplace_back(group + "auc", *r.auc);
    events_.scalars(step, scalars);
  }
}

void Reporter::histograms(int64_t step, const Program& program) {
  if (!events_.is_open()) return;
  const HostState state(program);
  state.download();
  const ParameterTable& table = program.parameters();
  for (ParameterId id = 0; id < table.size(); ++id) {
    if (table[id].trained()) events_.histogram(step, "weights/" + table[id].name, state.parameter(id));
  }
}

void Reporter::checkpoint(const SaveResult& r) {
  if (!group_.is_root()) return;
  if (r.error) return event(r.step, "save failed", r.error->what());
  log_info("checkpoint of step {}: {} ({:.1f} MB; snapshot {:.3f} s, write {:.3f} s)", r.step, r.path,
           static_cast<double>(r.bytes) * 1e-6, r.snapshot_seconds, r.write_seconds);
  metrics_.write(json_line({{"kind", "checkpoint"},
                            {"step", r.step},
                            {"path", r.path},
                            {"bytes", r.bytes},
                            {"snapshot_seconds", r.snapshot_seconds},
                            {"write_seconds", r.write_seconds},
                            {"cpu_seconds", r.cpu_seconds}}));
}

void Reporter::event(int64_t step, const std::string& what, const std::string& text) {
  if (!group_.is_root()) return;
  metrics_.write(json_line({{"kind", "event"}, {"step", step}, {"event", what}, {"text", text}}));
}

void Reporter::bad_records(int64_t step, const std::string& data, std::span<const BadRecordNote> notes) {
  const auto all = group_.allgather(encode_bad_records(notes), {"the list of bad records", options_.wait_seconds});
  if (!group_.is_root()) return;
  const std::vector<BadRecordNote> records = merge_bad_records(all);
  int64_t times = 0;
  Json list = Json::array();
  for (const BadRecordNote& r : records) {
    times += r.times;
    if (list.size() < kListedRecords) log_info("bad record, met {} times: {}", r.times, r.message);
    list.push_back({{"index", r.index}, {"times", r.times}, {"message", r.message}});
  }
  const std::string text =
      fmt::format("bad records of {} skipped: {}, met {} times in all", data, records.size(), times);
  log_info("{}", text);
  metrics_.write(json_line(
      {{"kind", "event"}, {"step", step}, {"event", "bad_records"}, {"text", text}, {"records", std::move(list)}}));
}

void Reporter::back_to(int64_t step, const std::string& text) {
  metrics_.go_back(step);
  events_.go_back(step);
  event(step, "rolled back", text);
}

void Reporter::close() { log_status({}); }

}  // namespace lockstep
