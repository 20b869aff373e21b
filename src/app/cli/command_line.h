// The command line of `trainer`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/cli/benchmark_flags.h"
#include "lockstep/config/load.h"

namespace lockstep {

enum class Command {
  train,
  benchmark,
  check,
  evaluate,
  explain,
  inspect,
  export_weights,
  import_weights,
  pack,
  print,
  version
};

// How `pack` writes pictures.
struct PackChoices {
  int64_t short_side = 0;  // 0: what evaluation resizes to
  int quality = 95;        // of JPEGs
  bool png = false;        // PNG instead
  int64_t records_per_file = 1024;
};

// What was asked for; nothing is looked up or read yet.
struct CommandLine {
  Command command = Command::train;
  std::string config;  // train, check, evaluate, explain, import, pack: path or name of a recipe; may be empty
  std::vector<Assignment> overrides;  // the same: "section.key" and value, in the order of the key table
  BenchmarkOptions benchmark;         // benchmark; what it asks of the configuration is in `overrides`
  std::string checkpoint;             // evaluate: path or "latest"; inspect, export: path
  bool verify = false;                // inspect: read every byte
  std::string compared;               // inspect: another checkpoint, to tell the differences; may be empty
  std::string from, to;               // import: the file to read; export, import: the file to write; pack: the folder
  bool average = false;               // export: the moving averages instead of the weights
  bool fold_batch_norm = false;       // export to ONNX
  bool drop_background = false;       // export, import: leave the first class out
  PackChoices pack;
  std::string text;  // print: help, for standard output
};

// `arguments` without the program's name. Throws Error(config) for anything that is not understood, with the nearest
// option, key or subcommand.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace lockstep
