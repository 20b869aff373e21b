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
  predict,
  profile,
  explain,
  dump_config,
  inspect,
  export_weights,
  import_weights,
  pack,
  print,
  version
};

// The options of `pack` for writing images.
struct PackChoices {
  int64_t short_side = 0;  // length in pixels; 0: the size to which evaluation resizes
  int quality = 95;        // JPEG quality
  bool png = false;        // write PNG instead of JPEG
  int64_t records_per_file = 1024;
};

// The input and output of `predict`.
struct PredictChoices {
  std::vector<std::string> images;  // files and directories; empty: the validation data
  int64_t top = 5;                  // classes for each sample
  std::string format = "table";     // table, csv or json
};

// The measurements and the output of `profile`.
struct ProfileChoices {
  int64_t steps = 10;
  size_t rows = 25;
};

// The parsed command line. Nothing has been looked up or read yet. The comments name the subcommands that use a member.
struct CommandLine {
  Command command = Command::train;
  // Of all but inspect and export: a path or the name of a recipe; may be empty.
  std::string config;
  std::vector<Assignment> overrides;  // the same subcommands: "section.key" and value
  BenchmarkOptions benchmark;         // benchmark; the configuration keys that it sets are in `overrides`
  std::string checkpoint;             // evaluate: path or "latest"; predict, inspect, export: path
  bool verify = false;                // inspect: read every byte
  std::string compared;               // inspect: another checkpoint to compare with; may be empty
  std::string from, to;    // import: the file to read; export, import, profile: the file to write; pack: the directory;
                           // dump_config: the file to write, or "-" for standard output
  bool average = false;    // export, predict, evaluate by class: the moving averages instead of the weights
  bool per_class = false;  // evaluate: print precision, recall and support of each class
  std::string confusion;   // evaluate: the file to write the confusion matrix to; may be empty
  bool fold_batch_norm = false;  // export to ONNX: fold batch normalization into convolutions
  bool drop_background = false;  // export, import: leave out the first class
  PackChoices pack;
  PredictChoices predict;
  ProfileChoices profile;
  std::string text;  // print: the help text for standard output
};

// Parses `arguments`, which exclude the program's name. Throws Error(config) for an unknown option, key or subcommand,
// with the nearest known one.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace lockstep
