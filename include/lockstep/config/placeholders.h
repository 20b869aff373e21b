// Placeholders in output paths: checkpoint.directory = "runs/{model}/{time}".
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lockstep/config/config.h"

namespace lockstep {

// The facts that are known only when a run starts.
struct StartFacts {
  int ranks = 1;
  std::string time;  // "20261129-140305"
  std::string job;   // of Slurm; empty: none
};

struct Placeholder {
  std::string_view name;
  std::string_view meaning;
  std::string (*value)(const Config&, const StartFacts&);
};

// Returns all placeholders but {section.key}, which stands for the value of that key.
std::span<const Placeholder> placeholders();

// Replaces the placeholders in all paths that may contain some. Throws Error(config), which names the key, for a
// placeholder that does not exist or has no value here.
void fill_in_placeholders(Config& config, const StartFacts& facts);

// Returns whether a path contains {time}, so that every start gets another one.
bool contains_time(std::string_view path);

// Returns `path` with its braces doubled, so that nothing in it is a placeholder.
std::string without_placeholders(std::string_view path);

}  // namespace lockstep
