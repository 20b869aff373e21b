#include "train/checkpoint_comparison.h"

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/printable.h"
#include "lockstep/config/changes.h"
#include "lockstep/config/load.h"

namespace lockstep {
namespace {

// Returns "step-00000010.h5 was trained with train.seed = 1, this run has 2".
std::string difference_text(const CheckpointReader& file, const ConfigChange& change, std::string_view here) {
  return fmt::format("{} was trained with {} = {}, this {} has {}", file.path(), change.key, change.before, here,
                     change.now);
}

std::vector<ConfigChange> changes_since(const CheckpointReader& file, const Config& now) {
  if (!file.has("/config")) return {};
  try {
    return config_changes(file.config(), file.path(), now);
  } catch (const Error& error) {
    log_warning("settings are not compared with those of {}: {}", file.path(), error.what());
    return {};
  }
}

// Returns a sentence for each change that is shown. Throws Error(config) for those that are refused, unless
// checkpoint.allow_changes permits them; then they are shown.
std::vector<std::string> differences(const CheckpointReader& file, const Config& config, std::string_view here,
                                     bool (*refused)(ChangeEffect), bool (*shown)(ChangeEffect)) {
  std::vector<std::string> lines;
  std::string refusals;
  for (const ConfigChange& change : changes_since(file, config)) {
    std::string text = difference_text(file, change, here);
    if (refused(change.effect) && !config.checkpoint.allow_changes) {
      refusals += (refusals.empty() ? "" : "; ") + text;
    } else if (shown(change.effect)) {
      lines.push_back(std::move(text));
    }
  }
  if (refusals.empty()) return lines;
  fail(ExitCode::config,
       "{}: the weights would compute something else than they were trained for, or on other pictures. Set it as it "
       "was, or set checkpoint.allow_changes = true if this is wanted",
       refusals);
}

bool always(ChangeEffect) { return true; }
bool changes_model(ChangeEffect effect) { return effect == ChangeEffect::model; }
bool changes_inference(ChangeEffect effect) { return effect != ChangeEffect::training; }

// Returns how the data differ, or nothing if the checkpoint does not identify its data.
std::optional<std::string> data_difference(const DataIdentity& data, const CheckpointReader& file) {
  const auto training = file.training();
  int64_t samples = 0, digest = 0;
  if (data.samples == 0 || !read_number(training, "data_samples", samples) ||
      !read_number(training, "data_digest", digest)) {
    return std::nullopt;
  }
  if (samples != data.samples) {
    return fmt::format(
        "{} was trained on {} samples, data.train has {} now: the order of samples changes, and epochs "
        "have another length",
        file.path(), samples, data.samples);
  }
  if (digest == static_cast<int64_t>(data.digest)) return std::nullopt;
  return fmt::format("{} was trained on other contents of data.train than there are now (digest {:016x}, now {:016x})",
                     file.path(), static_cast<uint64_t>(digest), data.digest);
}

}  // namespace

void check_split(const Config::Data& data, const CheckpointReader& file) {
  Config::Data before;
  try {
    before = config_from_toml(file.config(), file.path()).data;
  } catch (const Error&) {
    return;  // another version wrote it, with keys that this one does not know
  }
  if (data.validation_fraction <= before.validation_fraction || data.train != before.train) return;
  fail(ExitCode::config,
       "{} was trained with data.validation_fraction = {}, here it is {}: samples that it was trained on would be "
       "evaluated on. Set data.validation_fraction = {}, or start afresh",
       file.path(), before.validation_fraction, data.validation_fraction, before.validation_fraction);
}

void check_definition(const Config::Model& model, const CheckpointReader& file) {
  if (model.name != "file" || !file.has("/config") ||
      config_from_toml(file.config(), file.path()).model.definition == model.definition)
    return;
  fail(ExitCode::config,
       "{} was trained with another definition of the network than that of {}: set model.file to an unchanged file, or "
       "choose another checkpoint.directory and start there, with checkpoint.init_from if the weights fit",
       file.path(), model.file.empty() ? "model.definition" : printable(model.file));
}

int64_t compare_with_run(const Config& config, int ranks, const DataIdentity& data, const CheckpointReader& file) {
  std::vector<std::string> lines = differences(file, config, "run", changes_inference, always);
  const int64_t before = file.meta().global_batch, now = batch_sizes(config, ranks).global;
  if (before > 0 && before != now) {
    lines.push_back(fmt::format("{} was trained with a global batch of {}, this run has {}", file.path(), before, now));
  }
  if (auto text = data_difference(data, file)) lines.push_back(std::move(*text));
  for (const std::string& line : lines) log_warning("{}", line);
  return std::ssize(lines);
}

void compare_with_evaluation(const Config& config, const CheckpointReader& file) {
  for (const std::string& line : differences(file, config, "evaluation", changes_model, changes_inference)) {
    log_warning("{}", line);
  }
}

void compare_with_fine_tuning(const Config& config, const CheckpointReader& file) {
  for (const ConfigChange& change : changes_since(file, config)) {
    if (!changes_model(change.effect)) continue;
    log_warning("{}: the weights fit that no longer, until training has adapted them",
                difference_text(file, change, "run"));
  }
}

}  // namespace lockstep
