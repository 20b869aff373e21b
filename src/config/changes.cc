#include "lockstep/config/changes.h"

#include <algorithm>

#include "config/file.h"
#include "config/uses.h"
#include "lockstep/base/printable.h"
#include "lockstep/config/keys.h"
#include "lockstep/config/value.h"

namespace lockstep {
namespace {

struct Row {
  ChangeEffect effect;
  std::string_view keys;  // a list as in ConfigUse
};

// The first row that names a key decides.
constexpr Row kRows[] = {
    // These sections only configure how a run is executed.
    {ChangeEffect::none, "checkpoint.* eval.* device.* graph.* comm.* log.* watchdog.*"},
    {ChangeEffect::none, "data.workers data.prefetch data.max_pixels data.bad_records"},
    {ChangeEffect::none, "train.deterministic train.max_seconds train.not_finite train.audit_every"},
    // Names and shapes of arrays show changes of the network, and contents show changes of the data. The global batch
    // is compared instead of the keys from which it follows.
    {ChangeEffect::none,
     "model.name model.file model.definition model.classes model.hidden model.vocabulary model.init"},
    {ChangeEffect::none, "data.format data.train data.validation train.batch_size train.global_batch"},
    {ChangeEffect::none, "optimizer.initial_accumulator"},
    {ChangeEffect::input, "model.image_size data.augment data.exif_orientation"},
    {ChangeEffect::model, "model.bn_epsilon model.bn_scale model.transform_input model.mixed_7c_pool data.normalize"},
    {ChangeEffect::training, "model.aux_weight model.dropout model.bn_momentum model.max_ids"},
    {ChangeEffect::training,
     "data.validation_fraction data.label_offset data.label_key data.ids_key data.values_key data.shuffle "
     "data.shuffle_block data.jpeg_scaling"},
    {ChangeEffect::training,
     "train.epochs train.steps train.label_smoothing train.precision train.sync_batch_norm train.accumulate "
     "train.clip_norm train.seed train.freeze train.freeze_batch_norm"},
    {ChangeEffect::training, "optimizer.* schedule.* ema.*"},
};

}  // namespace

ChangeEffect change_effect(std::string_view key) {
  const auto* const row = std::ranges::find_if(kRows, [&](const Row& r) { return names_key(r.keys, key); });
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
