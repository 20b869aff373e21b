#include "config/uses.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "lockstep/base/split_words.h"
#include "lockstep/config/model_info.h"

namespace lockstep {
namespace {

bool one_of(std::string_view value, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, value) != words.end();
}

bool has_batch_norm(const Config& c) { return model_info(c.model.name).batch_norm; }
bool is_sparse(const Config& c) { return model_info(c.model.name).sparse; }
bool has_images(const Config& c) { return !is_sparse(c); }
bool has_auxiliary_head(const Config& c) { return model_info(c.model.name).auxiliary_image > 0; }
bool is_inception(const Config& c) { return c.model.name == "inception_v3"; }
bool reads_files(const Config& c) { return c.data.format != "synthetic"; }
bool optimizer_is(const Config& c, std::initializer_list<std::string_view> names) {
  return one_of(c.optimizer.name, names);
}
bool schedule_is(const Config& c, std::initializer_list<ScheduleKind> kinds) {
  return std::ranges::find(kinds, c.schedule.name) != kinds.end();
}

// The condition as text, with the models that fulfill it.
template <class Fact>
std::string models_with(std::string_view what, Fact ModelInfo::*fact) {
  std::vector<std::string_view> names;
  for (const ModelInfo& info : model_infos()) {
    if (info.*fact != Fact{}) names.push_back(info.name);
  }
  return fmt::format("{} ({})", what, fmt::join(names, ", "));
}

std::vector<ConfigUse> make_uses() {
  const std::string with_norms = models_with("a model with batch normalization", &ModelInfo::batch_norm);
  const std::string with_head = models_with("a model with an auxiliary head", &ModelInfo::auxiliary_image);
  const std::string of_sparse_samples = models_with("a model of sparse samples", &ModelInfo::sparse);
  return {
      {"model.file model.definition", "model.name = \"file\"", [](const Config& c) { return c.model.name == "file"; }},
      {"model.aux_weight", with_head, has_auxiliary_head},
      {"model.mixed_7c_pool", "model.name = \"inception_v3\"", is_inception},
      {"model.bn_momentum model.bn_epsilon model.bn_scale train.sync_batch_norm train.freeze_batch_norm", with_norms,
       has_batch_norm},
      {"model.hidden model.vocabulary model.max_ids", of_sparse_samples, is_sparse},
      {"model.image_size data.augment data.normalize", "a model of images", has_images},
      {"data.train data.label_offset data.bad_records", "a data.format that reads files", reads_files},
      {"data.label_key data.ids_key data.values_key", "data.format = \"sparse_tfrecord\"",
       [](const Config& c) { return c.data.format == "sparse_tfrecord"; }},
      {"data.exif_orientation data.jpeg_scaling data.max_pixels", "data.format = \"tfrecord\" or \"folder\"",
       [](const Config& c) {
         return one_of(c.data.format, {"tfrecord", "folder"});
       }},
      {"data.shuffle_block", "data.shuffle = true", [](const Config& c) { return c.data.shuffle; }},
      {"optimizer.momentum", "optimizer.name = \"sgd\", \"rmsprop_tf\", \"rmsprop\" or \"lars\"",
       [](const Config& c) {
         return optimizer_is(c, {"sgd", "rmsprop_tf", "rmsprop", "lars"});
       }},
      {"optimizer.nesterov", "optimizer.name = \"sgd\" with optimizer.momentum above 0",
       [](const Config& c) { return optimizer_is(c, {"sgd"}) && c.optimizer.momentum > 0; }},
      {"optimizer.decay", "optimizer.name = \"rmsprop_tf\" or \"rmsprop\"",
       [](const Config& c) {
         return optimizer_is(c, {"rmsprop_tf", "rmsprop"});
       }},
      {"optimizer.epsilon", "optimizer.name = \"rmsprop_tf\", \"rmsprop\", \"adam\" or \"adamw\"",
       [](const Config& c) {
         return optimizer_is(c, {"rmsprop_tf", "rmsprop", "adam", "adamw"});
       }},
      {"optimizer.beta1 optimizer.beta2", "optimizer.name = \"adam\" or \"adamw\"",
       [](const Config& c) {
         return optimizer_is(c, {"adam", "adamw"});
       }},
      {"optimizer.trust", "optimizer.name = \"lars\"", [](const Config& c) { return optimizer_is(c, {"lars"}); }},
      {"optimizer.l1 optimizer.l2 optimizer.learning_rate_power optimizer.initial_accumulator",
       "optimizer.name = \"ftrl\"", [](const Config& c) { return optimizer_is(c, {"ftrl"}); }},
      {"optimizer.decay_norm_and_bias", "optimizer.weight_decay above 0",
       [](const Config& c) { return c.optimizer.weight_decay > 0; }},
      {"schedule.decay_rate schedule.decay_epochs", "schedule.name = \"exponential\" or \"step\"",
       [](const Config& c) {
         return schedule_is(c, {ScheduleKind::exponential, ScheduleKind::step});
       }},
      {"schedule.boundaries schedule.factors", "schedule.name = \"piecewise\"",
       [](const Config& c) { return schedule_is(c, {ScheduleKind::piecewise}); }},
      {"checkpoint.overwrite", "checkpoint.resume = \"never\" or a path",
       [](const Config& c) {
         return !one_of(c.checkpoint.resume, {"auto", "must", "latest"});
       }},
      {"checkpoint.init_exclude", "checkpoint.init_from",
       [](const Config& c) { return !c.checkpoint.init_from.empty(); }},
      {"eval.*", "data.validation or data.validation_fraction", [](const Config& c) { return has_validation(c); }},
      {"eval.every_epochs", "eval.every_steps = 0, which takes its place above 0",
       [](const Config& c) { return c.eval.every_steps == 0; }},
      {"eval.patience_epochs", "eval.every_epochs or eval.every_steps above 0",
       [](const Config& c) { return c.eval.every_epochs > 0 || c.eval.every_steps > 0; }},
      {"device.share device.graph device.tune", "device.kind = \"gpu\" or \"auto\"",
       [](const Config& c) { return c.device.kind != DeviceChoice::cpu; }},
      {"device.winograd graph.recompute", "device.kind = \"cpu\" or \"auto\"",
       [](const Config& c) { return c.device.kind != DeviceChoice::gpu; }},
      {"graph.recompute", "graph.rewrites = true", [](const Config& c) { return c.graph.rewrites; }},
      {"comm.algorithm", "comm.transport = \"nccl\" or \"auto\"",
       [](const Config& c) { return c.comm.transport != TransportChoice::mpi; }},
      {"watchdog.warn_seconds watchdog.abort_seconds watchdog.start_warn_seconds watchdog.start_abort_seconds "
       "watchdog.scan_warn_seconds watchdog.scan_abort_seconds watchdog.evaluate_warn_seconds "
       "watchdog.evaluate_abort_seconds watchdog.save_warn_seconds watchdog.save_abort_seconds",
       "watchdog.enabled = true", [](const Config& c) { return c.watchdog.enabled; }},
      {"log.histogram_steps", "log.tensorboard = true", [](const Config& c) { return c.log.tensorboard; }},
  };
}

}  // namespace

std::span<const ConfigUse> config_uses() {
  static const std::vector<ConfigUse> uses = make_uses();
  return uses;
}

const ConfigUse* missing_use(const Config& config, std::string_view key) {
  const auto found = std::ranges::find_if(
      config_uses(), [&](const ConfigUse& use) { return names_key(use.keys, key) && !use.holds(config); });
  return found == config_uses().end() ? nullptr : &*found;
}

bool names_key(std::string_view keys, std::string_view key) {
  const std::string_view section = key.substr(0, key.find('.') + 1);
  return std::ranges::any_of(split_words(keys, ' '), [&](std::string_view listed) {
    return listed == key || (listed.starts_with(section) && listed.substr(section.size()) == "*");
  });
}

}  // namespace lockstep
