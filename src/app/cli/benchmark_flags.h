// The command line of a synthetic benchmark, as users of tf_cnn_benchmarks type it:
//   mpirun -np N trainer --model inception3 --batch_size 64 --num_batches 100
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/config/load.h"

namespace lockstep {

struct BenchmarkOptions {
  std::string model;                 // as it was named
  std::string optimizer = "sgd";     // likewise: momentum is a name of its own
  std::string data_format = "NCHW";  // shown; a backend lays data out as suits it
  int64_t batches = 100;             // timed ones
  int64_t warm_up = 10;              // before them
  int64_t display_every = 10;
  int64_t alone = 5;  // where there are several ranks: steps of each without the others, after the timed ones
  bool forward_only = false;
  std::string log_folder;  // for benchmark.json; empty: none
};

struct BenchmarkCommand {
  BenchmarkOptions options;
  std::vector<Assignment> overrides;  // the configuration that the flags ask for
};

// Whether these arguments (without the program's name) are a benchmark's: flags of its own and no --config.
bool is_benchmark(const std::vector<std::string>& arguments);

// Flags are given as --flag=value, --flag value, --flag or --noflag for a switch. Keys of the configuration,
// --section.key, are taken too and go before what a flag sets. Throws Error(config) for a flag that means nothing here,
// with what to use instead.
BenchmarkCommand parse_benchmark_flags(const std::vector<std::string>& arguments);

}  // namespace lockstep
