#include "lockstep/config/changes.h"

#include <algorithm>
#include <array>

#include "config/file.h"
#include "lockstep/base/printable.h"
#include "lockstep/config/keys.h"
#include "lockstep/config/value.h"

namespace lockstep {
namespace {

struct Row {
  std::string_view key;
  ChangeEffect effect;
};

// The sections that only configure how a run is executed.
constexpr std::array<std::string_view, 7> kWithoutEffect = {"checkpoint", "eval", "device",  "graph",
                                                            "comm",       "log",  "watchdog"};

// All keys of the other sections.
constexpr Row kRows[] = {
    {"model.name", ChangeEffect::none},  // the names and shapes of the arrays reveal these
    {"model.file", ChangeEffect::none},
    {"model.definition", ChangeEffect::none},
    {"model.classes", ChangeEffect::none},
    {"model.hidden", ChangeEffect::none},
    {"model.vocabulary", ChangeEffect::none},
    {"model.init", ChangeEffect::none},
    {"model.image_size", ChangeEffect::input},
    {"model.aux_weight", ChangeEffect::training},
    {"model.dropout", ChangeEffect::training},
    {"model.bn_momentum", ChangeEffect::training},
    {"model.bn_epsilon", ChangeEffect::model},
    {"model.bn_scale", ChangeEffect::model},
    {"model.transform_input", ChangeEffect::model},
    {"model.mixed_7c_pool", ChangeEffect::model},
    {"model.max_ids", ChangeEffect::training},

    {"data.format", ChangeEffect::none},  // the contents of the data reveal these
    {"data.train", ChangeEffect::none},
    {"data.validation", ChangeEffect::none},
    {"data.validation_fraction", ChangeEffect::training},
    {"data.label_offset", ChangeEffect::training},
    {"data.label_key", ChangeEffect::training},
    {"data.ids_key", ChangeEffect::training},
    {"data.values_key", ChangeEffect::training},
    {"data.augment", ChangeEffect::input},
    {"data.normalize", ChangeEffect::model},
    {"data.shuffle", ChangeEffect::training},
    {"data.shuffle_block", ChangeEffect::training},
    {"data.workers", ChangeEffect::none},
    {"data.prefetch", ChangeEffect::none},
    {"data.max_pixels", ChangeEffect::none},
    {"data.bad_records", ChangeEffect::none},
    {"data.exif_orientation", ChangeEffect::input},
    {"data.jpeg_scaling", ChangeEffect::training},

    {"train.batch_size", ChangeEffect::none},  // the global batch is compared instead
    {"train.global_batch", ChangeEffect::none},
    {"train.epochs", ChangeEffect::training},
    {"train.steps", ChangeEffect::training},
    {"train.label_smoothing", ChangeEffect::training},
    {"train.precision", ChangeEffect::training},
    {"train.sync_batch_norm", ChangeEffect::training},
    {"train.accumulate", ChangeEffect::training},
    {"train.clip_norm", ChangeEffect::training},
    {"train.seed", ChangeEffect::training},
    {"train.deterministic", ChangeEffect::none},
    {"train.max_seconds", ChangeEffect::none},
    {"train.not_finite", ChangeEffect::none},
    {"train.audit_every", ChangeEffect::none},

    {"optimizer.name", ChangeEffect::training},
    {"optimizer.lr", ChangeEffect::training},
    {"optimizer.scale_lr", ChangeEffect::training},
    {"optimizer.momentum", ChangeEffect::training},
    {"optimizer.decay", ChangeEffect::training},
    {"optimizer.epsilon", ChangeEffect::training},
    {"optimizer.beta1", ChangeEffect::training},
    {"optimizer.beta2", ChangeEffect::training},
    {"optimizer.trust", ChangeEffect::training},
    {"optimizer.l1", ChangeEffect::training},
    {"optimizer.l2", ChangeEffect::training},
    {"optimizer.learning_rate_power", ChangeEffect::training},
    {"optimizer.initial_accumulator", ChangeEffect::none},
    {"optimizer.weight_decay", ChangeEffect::training},
    {"optimizer.decay_norm_and_bias", ChangeEffect::training},

    {"schedule.name", ChangeEffect::training},
    {"schedule.warmup_epochs", ChangeEffect::training},
    {"schedule.decay_rate", ChangeEffect::training},
    {"schedule.decay_epochs", ChangeEffect::training},
    {"schedule.boundaries", ChangeEffect::training},
    {"schedule.factors", ChangeEffect::training},

    {"ema.decay", ChangeEffect::training},
};

}  // namespace

ChangeEffect change_effect(std::string_view key) {
  if (std::ranges::find(kWithoutEffect, key.substr(0, key.find('.'))) != kWithoutEffect.end()) {
    return ChangeEffect::none;
  }
  const auto* const row = std::ranges::find(kRows, key, &Row::key);
  return row == std::end(kRows) ? ChangeEffect::training : row->effect;  // a missing key is reported rather than hidden
}

std::vector<ConfigChange> config_changes(std::string_view before, const std::string& where, const Config& now) {
  const std::vector<ConfigFileEntry> entries = parse_config_file(before, where);
  std::vector<ConfigChange> changes;
  for (const ConfigKey& key : config_keys()) {
    const auto entry = std::ranges::find(entries, &key, &ConfigFileEntry::key);
    if (entry == entries.end()) continue;
    const ConfigValue value = key.member.get(now);
    const ChangeEffect effect = change_effect(key.full_name());
    if (effect == ChangeEffect::none || entry->value == value) continue;
    changes.push_back({.key = key.full_name(),
                       .before = printable(config_value_toml(entry->value)),
                       .now = printable(config_value_toml(value)),
                       .effect = effect});
  }
  return changes;
}

}  // namespace lockstep
