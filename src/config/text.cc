// Writes the configuration as TOML, and the reference manual as Markdown.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/model_defaults.h"
#include "lockstep/config/keys.h"
#include "lockstep/config/load.h"
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
  std::string words;
  for (const std::string_view word : key.allowed) {
    words += fmt::format("{}`{}`", words.empty() ? "" : ", ", word);
  }
  if (!words.empty() && key.path != PathRole::none) words += " or a path";
  if (!words.empty()) return words;
  return key.range.limited() ? key.range.text() : "";
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

The command line wins over the environment, the environment over the file, the file over the defaults of the model, and
those over the defaults below. A setting that has no effect beside the others (`optimizer.momentum` with `adamw`) is named
in one line when a run starts.
`trainer explain --config FILE` prints what results and where each value comes from. A key that does not exist, is given
twice, has a value of the wrong type or out of range ends the program with exit code 2 before anything else starts.

**Files and recipes.** `--config` takes a path (anything with a `/` in it or that ends in `.toml`) or the name of a
recipe: a file of `models/recipes` or of the installation's `share/lockstep/recipes`, without `.toml`. A pipe is read to its
end, `--config <(sed ... run.toml)`, and refused when nothing comes from it for 30 s; under mpirun, which keeps a shell's pipes from its ranks, it is `--config /dev/stdin`.

**Paths.** Input paths (data, checkpoints to start from) that stand in the file are relative to the file's folder (those
from a pipe, to the folder in which rank 0 was started). Input paths from the command line or the environment, and all outputs wherever they are written, are relative to the folder in
which rank 0 was started. `~` and `$NAME` are not expanded, so they are refused; on the command line the shell expands
them first.

**Patterns.** `data.train` and `data.validation` are patterns of paths: `*`, `?`, `[a-z]`, `{one,other}`, and a backslash
before a character that stands for itself. Where a path of just this name exists, it is that path. Only what is written
is a pattern: a folder that a relative pattern starts from stands for itself, also one that is called `exp[lr=0.1]`.

**Numbers.** In the file they are TOML's. On the command line and in the environment a number is decimal, `12`, `-3`,
`0.5`, `.5` or `1e-4`, and nothing may precede or follow it; `0x10`, `1_000`, `+1`, `1,5`, `nan` and `inf` are errors. An
integer may be written as `1e3` when it is one exactly. Numbers are finite everywhere.

**Lists** on the command line and in the environment have commas between their items: `--data.train a.tfrecord,b.tfrecord`.
Items with a comma in them need TOML's notation, `--data.train '["a,b.tfrecord", "c.tfrecord"]'`; commas in the braces of
a pattern do not part items.

**Environment.** A variable `LOCKSTEP_SECTION_KEY` that names no key is an error when SECTION is one of the sections
below or the name is close to a key's; any other variable with the prefix is left alone.
)";

// Returns the section of the manual about defaults that depend on the model.
std::string model_default_text() {
  std::string out =
      "\n## Defaults of a model\n\nWhat the tables below call default suits inception_v3. Other models bring these; "
      "those of "
      "[optimizer]\nand [schedule] count unless another name is given there.\n\n| model.name | defaults |\n|---|---|\n";
  for (const std::string_view model : find_config_key("model.name")->allowed) {
    std::string values;
    for (const auto& [key, value] : model_defaults(model)) {
      values += fmt::format("{}`{} = {}`", values.empty() ? "" : ", ", key, value);
    }
    if (!values.empty()) out += fmt::format("| `{}` | {} |\n", model, values);
  }
  return out;
}

}  // namespace

std::string to_toml(const Config& config) {
  return toml_text(config, [](const ConfigKey&) { return std::string(); });
}

std::string to_toml(const LoadedConfig& loaded) {
  return toml_text(loaded.config, [&](const ConfigKey& key) {
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
