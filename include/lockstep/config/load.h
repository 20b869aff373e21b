// Builds a checked Config from file, environment and command line, and converts it to TOML text and back. All functions
// are pure, so rank 0 can load a configuration and broadcast to_toml(), and the other ranks call config_from_toml().
// sources.h accesses the disk and the process.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/config.h"

namespace lockstep {

// A name and the text that was assigned to it. The name is "train.seed" on the command line and "LOCKSTEP_TRAIN_SEED"
// in the environment.
struct Assignment {
  std::string name;
  std::string value;
};

struct ConfigFile {
  std::string path;  // absolute
  std::string text;
  std::string directory;  // absolute; the base of relative input paths; empty: the directory of the file
};

struct ConfigSources {
  std::string file_path;  // absolute; empty: no file
  std::string file_text;  // its contents
  std::string
      file_directory;  // absolute; the base of relative input paths in the file; empty: the directory of the file
  std::vector<Assignment> environment;                            // any variables; only LOCKSTEP_SECTION_KEY is read
  std::vector<Assignment> overrides;                              // "section.key" and value, from the command line
  bool evaluation = false;                                        // for an evaluation, data.train may be missing
  bool effective = false;                                         // file_text sets every key, as to_toml() writes it
  std::function<std::string(const std::string& path)> read_file;  // for model.file: its definition
  // Opens the file that another one extends: a path relative to `directory`, or a recipe.
  ConfigFile (*open_extended)(const std::string& name, const std::string& directory) = nullptr;
  std::string working_directory;  // absolute; the base of relative output paths, and of paths in the command line and
                                  // environment
};

struct LoadedConfig {
  Config config;
  // The origin of each "section.key": "default", "default of resnet50", "digits.toml:12", "environment
  // LOCKSTEP_TRAIN_SEED" or "command line".
  std::map<std::string, std::string, std::less<>> origin;
  std::vector<std::string> warnings;  // one sentence for each given setting without effect
  std::vector<std::string> replaced;  // one sentence for each size in the model file that another one replaces
};

// Loads the configuration. Precedence: command line, environment, file, the file that it extends, default of the model
// (unless another optimizer or schedule than the model's is chosen), number of classes and size of images in
// model.file, built-in default. Input paths in a file are relative to its directory, all other paths to the working
// directory; all become absolute. Placeholders in output paths are checked and stay (fill_in_placeholders()). The
// result has passed validate(). Throws Error(config), which names the file and line, variable or option, and for an
// unknown key the nearest known one.
LoadedConfig load_config(const ConfigSources& sources);

// Returns one sentence for each setting that was given explicitly but has no effect with the others: the key, its
// origin, and what it requires.
std::vector<std::string> settings_without_effect(const LoadedConfig& loaded);

// Checks combinations of keys; the checks need neither the data nor the number of ranks. Throws Error(config), which
// names the keys and what to do. With `evaluation`, training data are not required.
void validate(const Config& config, bool evaluation = false);

// The numbers of samples of one forward pass on one rank, and of one update over all ranks.
struct BatchSizes {
  int64_t per_rank = 0;
  int64_t global = 0;
};
// Computes the batch sizes from train.batch_size, or from train.global_batch, which is divided by ranks x
// train.accumulate. Throws Error(config) if the division leaves a remainder.
BatchSizes batch_sizes(const Config& config, int ranks);

// Returns the number of samples per rank and forward pass of an evaluation: eval.batch_size, or that of training. Any
// number of ranks may evaluate, so a global batch that does not divide is rounded up.
int64_t evaluation_batch(const Config& config, int ranks);

// An item of optimizer.lr_factors: "PATTERN=FACTOR".
struct LearningRateFactor {
  std::string pattern;
  double factor = 1;
};
// Throws Error(config) for an item of another form.
std::vector<LearningRateFactor> learning_rate_factors(const Config::Optimizer& config);

// Returns all keys as TOML text, which config_from_toml() turns into an equal Config.
std::string to_toml(const Config& config);
// Returns the same for human readers, with the origin of each value as a comment.
std::string to_toml(const LoadedConfig& loaded);

// Returns TOML text from which load_config() makes an equal Config, with the origin of each value as a comment.
// Defaults that have no effect are left out.
std::string to_loadable_toml(const LoadedConfig& loaded);

// Parses the text of to_toml(), from a broadcast or a checkpoint. `where` names the text in errors. Missing keys keep
// their defaults; paths are not changed.
Config config_from_toml(std::string_view text, const std::string& where);

// Returns the text of docs/configuration.md.
std::string config_reference();

}  // namespace lockstep
