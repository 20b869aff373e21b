#include "lockstep/observe/reporter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.h"
#include "lockstep/base/counted.h"
#include "lockstep/base/log.h"
#include "lockstep/base/printable.h"
#include "lockstep/comm/group/gather_values.h"
#include "lockstep/config/load.h"
#include "lockstep/io/file.h"
#include "observe/bad_records.h"
#include "observe/run_values.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// The version of the rows. It changes when a field is removed or gets another meaning, not when one is added.
constexpr int kMetricsSchema = 1;

constexpr size_t kMaxMessageBytes = 1000;
constexpr size_t kLoggedTableRows = 10;    // profile.json has all
constexpr size_t kMaxLoggedRecords = 100;  // metrics.jsonl lists all of them

// Adds the time. Replaces invalid UTF-8, because paths in the row may contain any bytes.
std::string json_line(Json row) {
  row["time"] = std::round(wall_seconds() * 1e3) / 1e3;
  return row.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A rank's own work is reading data and computing: the time during which the other ranks wait for it.
struct OwnWork {
  int slowest = 0;                      // rank
  double min = 0, median = 0, max = 0;  // seconds per step
};

OwnWork own_work(std::span<const RankTimes> ranks) {
  std::vector<double> own;
  for (const RankTimes& times : ranks) own.push_back(times.part(StepPart::data) + times.part(StepPart::compute));
  const auto slowest = static_cast<int>(std::ranges::max_element(own) - own.begin());
  std::ranges::sort(own);
  return {slowest, own.front(), own[(own.size() - 1) / 2], own.back()};
}

constexpr std::array<const char*, kStepParts> kPartTexts = {"waiting for data", "computing", "the reduction",
                                                            "copying a snapshot"};

std::string percent(int64_t part, int64_t whole) {
  return fmt::format("{:.2f} % ({}/{})", whole ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0,
                     part, whole);
}

// The subdirectories of the event files. TensorBoard draws the same tag of several into one diagram.
constexpr const char *kRunEvents = "", *kTrainEvents = "train", *kValidationEvents = "validation",
                     *kAverageEvents = "validation_ema";

// Formats with three decimals, or with three significant digits below 0.1 s.
std::string seconds_text(double seconds) {
  return seconds >= 0.1 || seconds <= 0 ? fmt::format("{:.3f}", seconds) : fmt::format("{:.3g}", seconds);
}

}  // namespace

Reporter::Reporter(ProcessGroup& group, ReporterOptions options)
    : group_(group),
      options_(std::move(options)),
      page_(options_.directory),
      files_({.directory = options_.directory, .slow_seconds = options_.slow_disk_seconds}),
      logs_(std::make_shared<Logs>()) {
  if (!group_.is_root() || (options_.jsonl.empty() && options_.events.empty())) return;
  const auto open = [&](std::function<void()> job) { files_.post({.run = std::move(job), .required = true}); };
  const int64_t step = options_.resumed_step;
  open([logs = logs_, path = options_.jsonl, step] { logs->metrics = MetricsLog(path, step); });
  open([logs = logs_, path = options_.events, step] {
    logs->events_directory = path;
    logs->resumed_step = step;
    // Those that exist contain events of steps that the run repeats.
    for (const char* name : {kRunEvents, kTrainEvents, kValidationEvents, kAverageEvents}) {
      if (name == kRunEvents || name == kTrainEvents || path_exists(path + "/" + name)) logs->events_in(name);
    }
  });
}

EventFile& Reporter::Logs::events_in(const std::string& subdirectory) {
  const auto found = events.find(subdirectory);
  if (found != events.end()) return found->second;
  const std::string directory =
      events_directory.empty() || subdirectory.empty() ? events_directory : events_directory + "/" + subdirectory;
  return events.emplace(subdirectory, EventFile(directory, resumed_step)).first->second;
}

void Reporter::write_row(std::string row) {
  if (options_.jsonl.empty()) return;
  const size_t bytes = row.size();
  files_.post({.run = [logs = logs_, text = std::move(row)] { logs->metrics.write(text); }, .bytes = bytes});
}

void Reporter::write_event(const std::string& subdirectory, std::string event) {
  if (options_.events.empty()) return;
  const size_t bytes = event.size();
  files_.post(
      {.run = [logs = logs_, subdirectory, text = std::move(event)] { logs->events_in(subdirectory).write(text); },
       .bytes = bytes});
}

void Reporter::write_prometheus() {
  if (options_.prometheus.empty()) return;
  page_.set("lockstep_update_time_seconds", wall_seconds());
  std::string text = page_.text();
  const size_t bytes = text.size();
  files_.post({.run =
                   [path = options_.prometheus, text = std::move(text)] {
                     write_file_atomically(path, std::as_bytes(std::span(text)),
                                           {.blame = ExitCode::checkpoint, .flush = false});
                   },
               .bytes = bytes});
}

void Reporter::start(int64_t step, const RunFacts& facts) {
  if (!group_.is_root()) return;
  const std::string configuration = to_toml(facts.configuration);
  write_event(kRunEvents, encode_text(step, "configuration", "```toml\n" + configuration + "```\n"));
  write_event(kRunEvents, encode_hyperparameters(hyperparameters(facts.configuration, group_.size())));
  page_.set("lockstep_run_info", 1,
            fmt::format("{},{},{}", prometheus_label("model", facts.configuration.model.name),
                        prometheus_label("version", facts.version), prometheus_label("commit", facts.commit)));
  page_.set("lockstep_running", 1);
  page_.set("lockstep_ranks", group_.size());
  page_.set("lockstep_step", static_cast<double>(step));
  write_prometheus();
  write_row(json_line({{"kind", "start"},
                       {"step", step},
                       {"schema", kMetricsSchema},
                       {"version", facts.version},
                       {"commit", facts.commit},
                       {"ranks", group_.size()},
                       {"hosts", group_.hosts()},
                       {"configuration", configuration}}));
}

void Reporter::interval(ProgressRow row, const StepTimer& timer) {
  const auto steps = static_cast<double>(timer.steps());
  auto mean = [&](StepPart part) { return timer.seconds(part) / steps; };
  row.data_seconds = mean(StepPart::data);
  row.compute_seconds = mean(StepPart::compute);
  row.reduce_seconds = mean(StepPart::reduce);
  row.save_seconds = mean(StepPart::save);
  row.seconds_per_step = timer.total_seconds() / steps;
  const double seconds = timer.total_seconds();  // 0 if the outcomes of several steps on a device arrive together
  row.examples_per_second = seconds > 0 ? static_cast<double>(timer.samples()) / seconds : std::nan("");
  const std::vector<RankTimes> ranks =
      gather({.parts = {row.data_seconds, row.compute_seconds, row.reduce_seconds, row.save_seconds}});
  const OwnWork own = own_work(ranks);
  if (group_.size() > 1) {
    row.slowest_rank = fmt::format("{}@{}", own.slowest, group_.host(own.slowest));
    row.slowest_lag_seconds = own.max - own.median;
  }
  summary_.add(timer.step_seconds(), timer.samples(), ranks);
  last_step_ = row.step;
  if (!group_.is_root()) return;
  if (options_.on_interval) {
    options_.on_interval(row);
  } else if (options_.bar_columns > 0) {
    log_status(progress_bar(row, options_.bar_columns, options_.bar_colored));
  } else {
    const std::string now = log_timestamp_now(), line = training_line(now, row);
    log_line(LogLevel::info, log_has_time() ? line.substr(now.size() + 2) : line);
  }
  Json json = {{"kind", "train"},
               {"step", row.step},
               {"epoch", row.epoch},
               {"loss", row.loss},
               {"lr", row.learning_rate},
               {"examples_per_second", row.examples_per_second},
               {"seconds_per_step", row.seconds_per_step},
               {"slowest_step_seconds", std::ranges::max(timer.step_seconds())},
               {"data_seconds", row.data_seconds},
               {"compute_seconds", row.compute_seconds},
               {"reduce_seconds", row.reduce_seconds},
               {"save_seconds", row.save_seconds},
               {"queue_depth", row.queue_depth}};
  if (!row.slowest_rank.empty()) {
    json["slowest_rank"] = row.slowest_rank;
    json["own_seconds"] = {{"min", own.min}, {"median", own.median}, {"max", own.max}};
  }
  write_row(json_line(std::move(json)));
  write_event(kTrainEvents, encode_scalars(row.step, interval_scalars(row)));
  set_interval(page_, row);
  write_prometheus();
}

std::vector<RankTimes> Reporter::gather(const RankTimes& mine) {
  return gather_values<RankTimes>(group_, std::span(&mine, 1), {"the log line"});
}

void Reporter::watch_speed(int64_t step, const StepTotals& totals, std::span<const double> straggler_wait_seconds) {
  const auto found = slowdown_.add(gather(slowdown_.measure(totals, straggler_wait_seconds)));
  if (!found || !group_.is_root()) return;
  const std::string where = found->rank < 0 || group_.size() == 1
                                ? std::string()
                                : fmt::format(" on rank {}@{}", found->rank, group_.host(found->rank));
  const std::string text =
      fmt::format("step {}: a step takes {} s, {} s at best; {} s more go into {}{}", step,
                  seconds_text(found->seconds), seconds_text(found->best_seconds), seconds_text(found->added_seconds),
                  kPartTexts[static_cast<size_t>(found->part)], where);
  log_warning("{}", text);
  event(step, "slower", text);
}

void Reporter::evaluation(int64_t step, double epoch, std::span<const EvaluationResult> results) {
  if (!group_.is_root()) return;
  EvaluationRecords records{.step = step};
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
    records.rows.push_back(json_line(std::move(json)));
    EventScalars scalars = {{"top1", r.top1_fraction()}, {"top5", r.top5_fraction()}, {"loss", r.loss}};
    if (r.auc) scalars.emplace_back("auc", *r.auc);
    records.events.emplace_back(r.weights == Weights::raw ? kValidationEvents : kAverageEvents,
                                encode_scalars(step, scalars));
    set_evaluation(page_, step, r);
  }
  write_prometheus();
  write_evaluation(std::move(records));
}

void Reporter::write_evaluation(EvaluationRecords records) {
  if (options_.jsonl.empty() && options_.events.empty()) return;
  size_t bytes = 0;
  for (const std::string& row : records.rows) bytes += row.size();
  for (const auto& [subdirectory, event] : records.events) bytes += event.size();
  // A resumed run repeats an evaluation at the step from which it resumes if the earlier run had finished there, or had
  // stopped before evaluating.
  const bool may_repeat = records.step == options_.resumed_step;
  files_.post({.run =
                   [logs = logs_, may_repeat, records = std::move(records)] {
                     const bool again = may_repeat && logs->metrics.drop("eval", records.step);
                     for (const std::string& row : records.rows) logs->metrics.write(row);
                     if (again) return;
                     for (const auto& [subdirectory, event] : records.events)
                       logs->events_in(subdirectory).write(event);
                   },
               .bytes = bytes});
}

void Reporter::histogram(int64_t step, const std::string& parameter, std::span<const float> values) {
  if (!writes_events()) return;
  if (std::string event = encode_histogram(step, "weights/" + parameter, values); !event.empty()) {
    write_event(kTrainEvents, std::move(event));
  }
}

void Reporter::step_table(StepTable table) {
  if (!group_.is_root()) return;
  if (options_.on_step_table) return options_.on_step_table(table);
  for (const std::string& line : to_lines(table, kLoggedTableRows, std::nullopt)) log_info("{}", line);
  files_.post({.run =
                   [path = options_.directory + "/profile.json", table = std::move(table)] {
                     try {
                       write_text_atomically(path, to_json(table, std::nullopt), ExitCode::checkpoint);
                     } catch (const Error& error) {
                       log_warning("the profile is not written: {}", error.what());
                     }
                   },
               .required = true});
}

void Reporter::checkpoint(const SaveResult& r) {
  if (!group_.is_root()) return;
  if (r.error) {
    page_.set("lockstep_failed_saves_total", static_cast<double>(++failed_saves_));
    write_prometheus();
    return event(r.step, "save failed", r.error->what());
  }
  log_info("checkpoint of step {}: {} ({:.1f} MB; snapshot {:.3f} s, write {:.3f} s)", r.step, r.path,
           static_cast<double>(r.bytes) * 1e-6, r.snapshot_seconds, r.write_seconds);
  page_.set("lockstep_checkpoint_step", static_cast<double>(r.step));
  page_.set("lockstep_checkpoint_time_seconds", wall_seconds());
  page_.set("lockstep_checkpoint_bytes", static_cast<double>(r.bytes));
  write_prometheus();
  write_row(json_line({{"kind", "checkpoint"},
                       {"step", r.step},
                       {"path", r.path},
                       {"bytes", r.bytes},
                       {"snapshot_seconds", r.snapshot_seconds},
                       {"write_seconds", r.write_seconds},
                       {"cpu_seconds", r.cpu_seconds}}));
}

void Reporter::event(int64_t step, const std::string& what, const std::string& text) {
  if (!group_.is_root()) return;
  write_row(json_line({{"kind", "event"}, {"step", step}, {"event", what}, {"text", text}}));
}

void Reporter::bad_records(int64_t step, const SkippedData& skipped, std::span<const BadRecordNote> notes) {
  const auto all = group_.all_gather(encode_bad_records(notes), {"the list of bad records"});
  if (!group_.is_root()) return;
  const std::vector<BadRecordNote> records = merge_bad_records(all);
  int64_t times = 0;
  Json list = Json::array();
  for (const BadRecordNote& r : records) {
    times += r.times;
    if (list.size() < kMaxLoggedRecords)
      log_info("bad record, met {}: {}", counted_times(r.times), printable(r.message, kMaxMessageBytes));
    list.push_back({{"index", r.index}, {"times", r.times}, {"message", r.message}});
  }
  std::string text =
      fmt::format("bad records of {} skipped: {}, met {} in all", skipped.data, records.size(), counted_times(times));
  if (const auto& [files, bytes] = skipped.left_out; files > 0) {
    text += fmt::format("; besides, {} could not be read to the end: {} of records are left out",
                        counted(files, "file"), counted(bytes, "byte"));
  }
  log_info("{}", text);
  write_row(json_line(
      {{"kind", "event"}, {"step", step}, {"event", "bad_records"}, {"text", text}, {"records", std::move(list)}}));
}

void Reporter::back_to(int64_t step, const std::string& text) {
  if (group_.is_root() && !(options_.jsonl.empty() && options_.events.empty())) {
    files_.post({.run =
                     [logs = logs_, step] {
                       logs->metrics.go_back(step);
                       logs->resumed_step = step;
                       for (auto& [name, events] : logs->events) events.go_back(step);
                     },
                 .required = true});
  }
  event(step, "rolled back", text);
}

void Reporter::close(double seconds) {
  log_status({});
  if (!group_.is_root()) return;
  for (const std::string& line : summary_.lines()) {
    if (!options_.on_interval) log_info("{}", line);
    event(last_step_, "summary", line);
  }
  write_event(kRunEvents, encode_run_end());
  page_.set("lockstep_running", 0);
  write_prometheus();
  if (files_.finish(seconds)) return;
  fail(ExitCode::checkpoint,
       "{}: metrics and events are not written after {} s: the disk does not answer; the last checkpoint is whole",
       options_.directory, seconds);
}

}  // namespace lockstep
