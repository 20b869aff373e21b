// Writes the configuration as TOML, and the reference manual as Markdown.
#include <fmt/format.h>

#include <optional>

#include "config/uses.h"
#include "lockstep/base/printable.h"
#include "lockstep/config/keys.h"
#include "lockstep/config/load.h"
#include "lockstep/config/model_info.h"
#include "lockstep/config/placeholders.h"
#include "lockstep/config/value.h"

namespace lockstep {
namespace {

// `comment_of` returns what follows a value, or nothing to leave its key out.
template <class CommentOf>
std::string toml_text(const Config& config, CommentOf comment_of) {
  std::string out;
  for (const std::string_view section : config_sections()) {
    out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    for (const ConfigKey& key : config_keys()) {
      if (key.section != section) continue;
      const std::optional<std::string> comment = comment_of(key);
      if (comment) out += fmt::format("{} = {}{}\n", key.name, config_value_toml(key.member.get(config)), *comment);
    }
  }
  return out;
}

std::string origin_comment(const LoadedConfig& loaded, const ConfigKey& key) {
  const std::string& origin = loaded.origin.at(key.full_name());
  return origin == "default" ? std::string() : fmt::format("  # {}", printable(origin));
}

std::string limits_text(const ConfigKey& key) {
  if (key.allowed.empty()) return key.range.limited() ? key.range.text() : "";
  return fmt::format("`{}`{}", fmt::join(key.allowed, "`, `"), key.path == PathRole::none ? "" : " or a path");
}

std::string type_text(const ConfigKey& key) {
  const std::string_view text = key.path == PathRole::none                 ? describe(key.member.type)
                                : key.member.type == ConfigType::text_list ? "a path or a list of paths"
                                                                           : "a path";
  return key.unit.empty() ? std::string(text) : fmt::format("{}, {}", text, key.unit);
}

constexpr std::string_view kReferenceHead = R"(# Configuration

A run is described by one TOML file, `trainer --config FILE`. Every key below can also be given in the environment and
on the command line:

    [train]                                # in the file
    seed = 7

    export LOCKSTEP_TRAIN_SEED=7           # in the environment of rank 0
    trainer --config FILE --train.seed 7   # on the command line

The command line takes precedence over the environment, the environment over the file, the file over the one that it
extends, that over `classes` and `image_size` of a [model file](model_files.md) and over the defaults of the model, and
those over the defaults below. When a run starts, it lists settings that have no effect, such as
`optimizer.momentum` with `adamw`. `trainer explain --config FILE` prints the resulting configuration and the origin of
each value. An unknown or duplicate key, or a value of the wrong type or out of range, ends the program with exit code 2
before anything else starts.

**Files and recipes.** `--config` takes a path (anything that contains a `/` or ends in `.toml`) or the name of a
recipe: a file of `models/recipes` or of the installation's `share/lockstep/recipes`, without `.toml`. A pipe is read to
its end: `--config <(sed ... run.toml)`. It is an error if the pipe delivers nothing for 30 s. mpirun does not pass a
shell's pipes to its ranks; use `--config /dev/stdin` there.

**Extending a file.** A file may begin with `extends = "base.toml"`, before its first section: the settings of that file
apply where this one has none. The value is a path relative to the file, or the name of a recipe (`extends = "digits"`).
The other file may extend a third one, up to eight in all; a cycle is an error. A file that sets one of
`train.batch_size` and `train.global_batch` takes back the other one of the file that it extends. Lists are replaced, not
joined.

**A copy of everything.** `trainer --config FILE --dump-config FILE` writes the resulting configuration with the origin
of each value and starts nothing; `-` is standard output. As `--config`, the written file gives the same run from any
directory: all its paths are absolute, and it includes the definition of a model from a file.

**Paths.** Input paths in the file (data, checkpoints to start from) are relative to the directory of the file. All
other paths are relative to the working directory of rank 0: input paths from a pipe, the command line or the
environment, and all output paths. `~` and `$NAME` are errors because they are not expanded; on the command line, the
shell expands them first.

**Patterns.** `data.train` and `data.validation` are path patterns with `*`, `?`, `[a-z]` and `{one,other}`; a backslash
makes the next character literal. If a path with exactly this name exists, it is used. The directory to which a relative
pattern is relative is always literal, even if it is called `exp[lr=0.1]`.

**Placeholders.** `checkpoint.directory` and `log.prometheus_file` may contain the placeholders of the table below, and
`{section.key}` for the value of any key that is a single value and no path: `runs/{model}/lr{optimizer.lr}-seed{seed}`.
Rank 0 fills them in when the run starts, and all ranks use its values. Characters that are awkward in file names become
`_`; `{{` and `}}` are single braces.

PLACEHOLDERS
A directory with `{time}` is new at every start, so the command that starts a run does not resume it. Name the directory
to continue: `--checkpoint.directory runs/digits/20261129-140305`. The last line of a stopped run says so. Under Slurm,
use `{job}`, which stays the same when the job is requeued.

**Sweeps.** Put every key that varies into the directory, so that no two settings share one; started again, the loop
continues where it was interrupted and skips what is finished:

    for lr in 0.01 0.03 0.1; do
      lockstep run -np 2 --config run.toml --optimizer.lr "$lr" --checkpoint.directory 'sweep/lr{optimizer.lr}' || break
    done

A run that would resume from a checkpoint with other settings reports each of them; with `--checkpoint.resume never`, it
is an error that the directory contains checkpoints.

**Numbers.** The file uses TOML numbers. On the command line and in the environment, numbers are decimal (`12`, `-3`,
`0.5`, `.5` or `1e-4`), and nothing may precede or follow them; `0x10`, `1_000`, `+1`, `1,5`, `nan` and `inf` are
errors. An integer may be written as `1e3` if the value is exactly an integer. All numbers must be finite.

**Lists.** On the command line and in the environment, commas separate the items of a list:
`--data.train a.tfrecord,b.tfrecord`. Items that contain a comma need TOML notation:
`--data.train '["a,b.tfrecord", "c.tfrecord"]'`. Commas inside the braces of a pattern do not separate items.

**Environment.** A variable `LOCKSTEP_SECTION_KEY` that does not name a key is an error if SECTION is one of the
sections below or if the name is similar to a key; other variables with the prefix are ignored.
)";

std::string placeholder_table() {
  std::string out = "| placeholder | value |\n|---|---|\n";
  for (const Placeholder& one : placeholders()) out += fmt::format("| `{{{}}}` | {} |\n", one.name, one.meaning);
  return out + "\n";
}

// Returns the section of the manual about defaults that depend on the model.
std::string model_default_text() {
  std::string out =
      "\n## Defaults of a model\n\n"
      "The default values in the tables below are those of inception_v3. Other models have the following defaults. "
      "Those of\n[optimizer] and [schedule] apply only if no other optimizer or schedule is chosen.\n\n"
      "| model.name | defaults |\n|---|---|\n";
  for (auto model = model_infos().begin(); model != model_infos().end();) {
    std::string names, values;
    const auto defaults = model->defaults;
    for (const auto& [key, value] : defaults) {
      values += fmt::format("{}`{} = {}`", values.empty() ? "" : ", ", key, value);
    }
    for (; model != model_infos().end() && model->defaults.data() == defaults.data(); ++model) {
      names += fmt::format("{}`{}`", names.empty() ? "" : ", ", model->name);
    }
    if (!values.empty()) out += fmt::format("| {} | {} |\n", names, values);
  }
  return out;
}

}  // namespace

std::string to_toml(const Config& config) {
  return toml_text(config, [](const ConfigKey&) { return std::optional(std::string()); });
}

std::string to_toml(const LoadedConfig& loaded) {
  Config shown = loaded.config;
  const bool from_file = loaded.origin.at("model.definition") == shown.model.file;
  if (from_file) shown.model.definition.clear();  // the file is at hand
  return toml_text(shown, [&](const ConfigKey& key) { return std::optional(origin_comment(loaded, key)); });
}

std::string to_loadable_toml(const LoadedConfig& loaded) {
  return toml_text(loaded.config, [&](const ConfigKey& key) -> std::optional<std::string> {
    const std::string name = key.full_name();
    // Of the two batch sizes, only one may be given.
    const bool other_size = name == "train.batch_size" && loaded.config.train.global_batch > 0;
    const bool without_effect = other_size || missing_use(loaded.config, name);
    if (without_effect && loaded.origin.at(name).starts_with("default")) return std::nullopt;
    return origin_comment(loaded, key);
  });
}

std::string config_reference() {
  std::string out(kReferenceHead);
  const std::string_view table = "PLACEHOLDERS\n";
  out.replace(out.find(table), table.size(), placeholder_table());
  out += model_default_text();
  const Config defaults;
  for (const std::string_view section : config_sections()) {
    out += fmt::format("\n## [{}]\n\n| key | value | default | allowed | meaning |\n|---|---|---|---|---|\n", section);
    for (const ConfigKey& key : config_keys()) {
      if (key.section != section) continue;
      out += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", key.name, type_text(key),
                         config_value_toml(key.member.get(defaults)), limits_text(key), key.meaning);
    }
  }
  return out;
}

}  // namespace lockstep
