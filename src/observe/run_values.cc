#include "observe/run_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "lockstep/config/changes.h"
#include "lockstep/config/keys.h"

namespace lockstep {

Hyperparameters hyperparameters(const Config& config, int ranks) {
  constexpr std::array<std::string_view, 3> kMore = {"model.name", "train.batch_size", "train.global_batch"};
  Hyperparameters found = {{"ranks", static_cast<double>(ranks)}};
  for (const ConfigKey& key : config_keys()) {
    const std::string name = key.full_name();
    if (change_effect(name) == ChangeEffect::none && std::ranges::find(kMore, name) == kMore.end()) continue;
    const ConfigValue value = key.member.get(config);
    if (const auto* flag = std::get_if<bool>(&value)) found.emplace_back(name, *flag);
    if (const auto* integer = std::get_if<int64_t>(&value)) found.emplace_back(name, static_cast<double>(*integer));
    if (const auto* number = std::get_if<double>(&value)) found.emplace_back(name, *number);
    if (const auto* text = std::get_if<std::string>(&value)) found.emplace_back(name, *text);
  }
  return found;
}

EventScalars interval_scalars(const ProgressRow& row) {
  EventScalars scalars = {{"learning_rate", row.learning_rate},
                          {"epoch", row.epoch},
                          {"speed/seconds_per_step", row.seconds_per_step},
                          {"speed/data_seconds", row.data_seconds},
                          {"speed/compute_seconds", row.compute_seconds},
                          {"speed/reduce_seconds", row.reduce_seconds},
                          {"speed/save_seconds", row.save_seconds},
                          {"speed/queue_depth", row.queue_depth}};
  if (!std::isnan(row.loss)) scalars.emplace_back("loss", row.loss);
  if (!std::isnan(row.examples_per_second)) {
    scalars.emplace_back("speed/examples_per_second", row.examples_per_second);
  }
  return scalars;
}

void set_interval(PrometheusPage& page, const ProgressRow& row) {
  page.set("lockstep_step", static_cast<double>(row.step));
  page.set("lockstep_total_steps", static_cast<double>(row.total_steps));
  page.set("lockstep_epoch", row.epoch);
  page.set("lockstep_loss", row.loss);
  page.set("lockstep_learning_rate", row.learning_rate);
  page.set("lockstep_examples_per_second", row.examples_per_second);
  page.set("lockstep_step_seconds", row.seconds_per_step);
  for (const auto& [part, seconds] : {std::pair("data", row.data_seconds), std::pair("compute", row.compute_seconds),
                                      std::pair("reduce", row.reduce_seconds), std::pair("save", row.save_seconds)}) {
    page.set("lockstep_step_part_seconds", seconds, prometheus_label("part", part));
  }
  page.set("lockstep_queue_depth", row.queue_depth);
}

void set_evaluation(PrometheusPage& page, int64_t step, const EvaluationResult& r) {
  const std::string label = prometheus_label("weights", r.weights == Weights::raw ? "raw" : "ema");
  page.set("lockstep_evaluation_step", static_cast<double>(step), label);
  page.set("lockstep_evaluation_loss", r.loss, label);
  page.set("lockstep_evaluation_top1_ratio", r.top1_fraction(), label);
  page.set("lockstep_evaluation_top5_ratio", r.top5_fraction(), label);
  if (r.auc) page.set("lockstep_evaluation_auc", *r.auc, label);
}

}  // namespace lockstep
