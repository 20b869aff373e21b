// From file, environment and command line to one checked Config, and back to TOML text.
// Everything here is a pure function of its arguments, so rank 0 may load, broadcast to_toml() and the others call
// config_from_toml(). What touches the disk or the process is in config_sources.h.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/config.h"

namespace lockstep {

// A name and the text that was given for it: "train.seed" on the command line, "LOCKSTEP_TRAIN_SEED" in the
// environment.
struct Assignment {
  std::string name;
  std::string value;
};

struct ConfigSources {
  std::string file_path;                // absolute; empty: no file
  std::string file_text;                // its content
  std::string file_folder;              // absolute; where relative input paths in it start; empty: the file's folder
  std::vector<Assignment> environment;  // any variables; only LOCKSTEP_SECTION_KEY are read
  std::vector<Assignment> overrides;    // "section.key" and value, from the command line
  bool evaluation = false;              // no training: data.train may be missing
  bool effective = false;               // file_text is a whole configuration, as to_toml() writes it
  std::string working_folder;           // absolute; relative paths of command line, environment and outputs start here
};

struct LoadedConfig {
  Config config;
  // By "section.key": "default", "default of resnet50", "digits.toml:12", "environment LOCKSTEP_TRAIN_SEED" or "command
  // line".
  std::map<std::string, std::string, std::less<>> origin;
  std::vector<std::string> warnings;  // what was given and does nothing, a sentence each
};

// Precedence: command line, environment, file, the model's default (where nothing chooses another optimizer or schedule
// than the model's), built-in default. Input paths in the file are relative to the file's
// folder, all others to the working folder; both become absolute here. The result has passed validate().
// Throws Error(config) naming the file and line, variable or option, and the nearest known key where one is unknown.
LoadedConfig load_config(const ConfigSources& sources);

// The settings that somebody gave but that have no effect beside the others, a sentence each: key, origin, and what it
// would need.
std::vector<std::string> settings_without_effect(const LoadedConfig& loaded);

// Checks between keys that need neither data nor rank count. Throws Error(config) naming the keys and what to do.
// `evaluation`: training data are not needed.
void validate(const Config& config, bool evaluation = false);

// Samples of one forward pass on one rank, and of one update over all ranks.
struct BatchSizes {
  int64_t per_rank = 0;
  int64_t global = 0;
};
// train.batch_size, or train.global_batch shared out. Throws Error(config) when it does not divide.
BatchSizes batch_sizes(const Config& config, int ranks);

// Samples a rank and pass of an evaluation: eval.batch_size, or as in training. Any number of ranks may evaluate, so a
// global batch that does not divide is rounded up.
int64_t evaluation_batch(const Config& config, int ranks);

// Every key, as TOML text that config_from_toml() turns into an equal Config.
std::string to_toml(const Config& config);
// The same with the origin of each value as a comment, for people to read.
std::string to_toml(const LoadedConfig& loaded);

// Parses to_toml()'s text, from a broadcast or from a checkpoint; `where` names the text in errors.
// Keys that are missing keep their defaults; paths are taken as they are.
Config config_from_toml(std::string_view text, const std::string& where);

// docs/configuration.md.
std::string config_reference();

}  // namespace lockstep
