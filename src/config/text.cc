// Writes the configuration as TOML, and the reference manual as Markdown.
#include <fmt/format.h>

#include "lockstep/config/keys.h"
#include "lockstep/config/load.h"
#include "lockstep/config/model_info.h"
#include "lockstep/config/value.h"

namespace lockstep {
namespace {

template <class CommentOf>
std::string toml_text(const Config& config, CommentOf comment_of) {
  std::string out;
  for (const std::string_view section : config_sections()) {
    out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    for (const ConfigKey& key : config_keys()) {
      if (key.section != section) continue;
      out += fmt::format("{} = {}{}\n", key.name, config_value_toml(key.member.get(config)), comment_of(key));
    }
  }
  return out;
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

The command line takes precedence over the environment, the environment over the file, the file over the defaults of the
model, and those over the defaults below. When a run starts, it lists settings that have no effect, such as
`optimizer.momentum` with `adamw`. `trainer explain --config FILE` prints the resulting configuration and the origin of
each value. An unknown or duplicate key, or a value of the wrong type or out of range, ends the program with exit code 2
before anything else starts.

**Files and recipes.** `--config` takes a path (anything that contains a `/` or ends in `.toml`) or the name of a
recipe: a file of `models/recipes` or of the installation's `share/lockstep/recipes`, without `.toml`. A pipe is read to
its end: `--config <(sed ... run.toml)`. It is an error if the pipe delivers nothing for 30 s. mpirun does not pass a
shell's pipes to its ranks; use `--config /dev/stdin` there.

**Paths.** Input paths in the file (data, checkpoints to start from) are relative to the directory of the file. All
other paths are relative to the working directory of rank 0: input paths from a pipe, the command line or the
environment, and all output paths. `~` and `$NAME` are errors because they are not expanded; on the command line, the
shell expands them first.

**Patterns.** `data.train` and `data.validation` are path patterns with `*`, `?`, `[a-z]` and `{one,other}`; a backslash
makes the next character literal. If a path with exactly this name exists, it is used. The directory to which a relative
pattern is relative is always literal, even if it is called `exp[lr=0.1]`.

**Numbers.** The file uses TOML numbers. On the command line and in the environment, numbers are decimal (`12`, `-3`,
`0.5`, `.5` or `1e-4`), and nothing may precede or follow them; `0x10`, `1_000`, `+1`, `1,5`, `nan` and `inf` are
errors. An integer may be written as `1e3` if the value is exactly an integer. All numbers must be finite.

**Lists.** On the command line and in the environment, commas separate the items of a list:
`--data.train a.tfrecord,b.tfrecord`. Items that contain a comma need TOML notation:
`--data.train '["a,b.tfrecord", "c.tfrecord"]'`. Commas inside the braces of a pattern do not separate items.

**Environment.** A variable `LOCKSTEP_SECTION_KEY` that does not name a key is an error if SECTION is one of the
sections below or if the name is similar to a key; other variables with the prefix are ignored.
)";

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
  return toml_text(config, [](const ConfigKey&) { return std::string(); });
}

std::string to_toml(const LoadedConfig& loaded) {
  Config shown = loaded.config;
  const bool from_file = loaded.origin.at("model.definition") == shown.model.file;
  if (from_file) shown.model.definition.clear();  // the file is at hand
  return toml_text(shown, [&](const ConfigKey& key) {
    const std::string& origin = loaded.origin.at(key.full_name());
    return origin == "default" ? std::string() : fmt::format("  # {}", origin);
  });
}

std::string config_reference() {
  std::string out = std::string(kReferenceHead) + model_default_text();
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
