#include "lockstep/observe/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

struct Metric {
  std::string_view name, help;
  std::string_view type = "gauge";
};

constexpr std::array kMetrics = {
    Metric{"lockstep_run_info", "The run, with its properties as labels; always 1."},
    Metric{"lockstep_running", "1 while the run trains, 0 after its end."},
    Metric{"lockstep_update_time_seconds", "When this file was written, in seconds since 1970."},
    Metric{"lockstep_ranks", "Number of ranks."},
    Metric{"lockstep_step", "Number of the last reported step."},
    Metric{"lockstep_total_steps", "Number of steps of the run."},
    Metric{"lockstep_epoch", "Epochs trained."},
    Metric{"lockstep_loss", "Training loss of the last log interval."},
    Metric{"lockstep_learning_rate", "Learning rate."},
    Metric{"lockstep_examples_per_second", "Samples per second of all ranks."},
    Metric{"lockstep_step_seconds", "Mean time of a step in the last log interval."},
    Metric{"lockstep_step_part_seconds", "Mean time of a part of a step on rank 0."},
    Metric{"lockstep_queue_depth", "Mean number of prefetched batches."},
    Metric{"lockstep_evaluation_step", "Step of the last evaluation."},
    Metric{"lockstep_evaluation_loss", "Validation loss."},
    Metric{"lockstep_evaluation_top1_ratio", "Top-1 accuracy, from 0 to 1."},
    Metric{"lockstep_evaluation_top5_ratio", "Top-5 accuracy, from 0 to 1."},
    Metric{"lockstep_evaluation_auc", "Area under the ROC curve, with two classes."},
    Metric{"lockstep_checkpoint_step", "Step of the last checkpoint."},
    Metric{"lockstep_checkpoint_time_seconds", "When the last checkpoint was complete, in seconds since 1970."},
    Metric{"lockstep_checkpoint_bytes", "Size of the last checkpoint."},
    Metric{"lockstep_failed_saves_total", "Number of saves that failed.", "counter"},
};

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

void PrometheusPage::set(std::string_view metric, double value, const std::string& labels) {
  require(std::ranges::find(kMetrics, metric, &Metric::name) != kMetrics.end(), "{} is no metric", metric);
  samples_[std::string(metric)][labels] = value;
}

std::string PrometheusPage::text() const {
  const std::string run = prometheus_label("run", run_);
  std::string out;
  for (const Metric& metric : kMetrics) {
    const auto found = samples_.find(metric.name);
    if (found == samples_.end()) continue;
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", metric.name, metric.help, metric.type);
    for (const auto& [labels, value] : found->second) {
      out += fmt::format("{}{{{}{}{}}} {}\n", metric.name, run, labels.empty() ? "" : ",", labels, number(value));
    }
  }
  return out;
}

std::string prometheus_label(std::string_view name, std::string_view value) {
  std::string out = fmt::format("{}=\"", name);
  for (const char c : printable(value)) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out + '"';
}

}  // namespace lockstep
