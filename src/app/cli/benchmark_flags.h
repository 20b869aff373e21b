// The command line of a synthetic benchmark, compatible with tf_cnn_benchmarks:
//   mpirun -np N trainer --model inception3 --batch_size 64 --num_batches 100
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/config/load.h"

namespace lockstep {

struct BenchmarkOptions {
  std::string model;                 // the name from the command line
  std::string optimizer = "sgd";     // the name from the command line; "momentum" is sgd with momentum
  std::string data_format = "NCHW";  // only printed; the backend chooses its own layout
  int64_t batches = 100;             // number of timed steps
  int64_t warm_up = 10;              // number of steps before them
  int64_t display_every = 10;
  int64_t alone = 5;  // with several ranks: number of steps of each rank without the others, after the timed ones
  bool forward_only = false;
  bool batch_on_device = true;  // GPUs: one batch is uploaded and used in every step
  std::string log_directory;    // the directory of benchmark.json; empty: not written
};

struct BenchmarkCommand {
  BenchmarkOptions options;
  std::vector<Assignment> overrides;  // the configuration keys that the flags set
};

// Returns whether these arguments (without the program's name) select benchmark mode: they contain one of its flags and
// no --config.
bool is_benchmark(const std::vector<std::string>& arguments);

// Parses flags of the forms --flag=value and --flag value, and --flag or --noflag for a switch. Configuration keys
// (--section.key) are also accepted and take precedence over flags. Throws Error(config) for a flag that is not
// supported, with what to use instead.
BenchmarkCommand parse_benchmark_flags(const std::vector<std::string>& arguments);

}  // namespace lockstep
