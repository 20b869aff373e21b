// The command line of `trainer`.
#pragma once

#include <string>
#include <vector>

#include "lockstep/train/config_load.h"

namespace lockstep {

enum class Command { train, check, evaluate, explain, inspect, print };

// What was asked for; nothing is looked up or read yet.
struct CommandLine {
  Command command = Command::train;
  std::string config;                 // train, check, evaluate, explain: path or name of a recipe; may be empty
  std::vector<Assignment> overrides;  // the same: "section.key" and value, in the order of the key table
  std::string checkpoint;             // evaluate: path or "latest"; inspect: path
  bool verify = false;                // inspect: read every byte
  std::string text;                   // print: help or version, for standard output
};

// `arguments` without the program's name. Throws Error(config) for anything that is not understood, with the nearest
// option, key or subcommand.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace lockstep
