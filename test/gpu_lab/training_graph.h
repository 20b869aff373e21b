// What the commands of gpu_lab share: a model's training graph, and what is asked of it.
#pragma once

#include <cuda_runtime_api.h>

#include <limits>
#include <string>

#include "lockstep/base/clock.h"
#include "lockstep/graph/executable.h"

namespace lockstep::lab {

struct Question {
  std::string model, precision;  // as model.name and train.precision have them
  int64_t batch = 0;
  double deadline = std::numeric_limits<double>::infinity();  // monotonic_seconds after which nothing is started

  bool time_is_over() const { return monotonic_seconds() >= deadline; }
  DType compute() const;
  bool tf32() const { return precision == "tf32"; }
};

// The model as its recipe trains it (test/models/recipe_options.h), and how a run compiles it: on a GPU, images come as
// bytes.
Graph training_graph(const Question& question);
CompileOptions compile_options(const Question& question, const Backend& backend);

// Floating-point operations of a convolution or a gradient of it; 0 of any other node.
double operations_of(const Graph& graph, const Node& node);

// Throws Error(internal) with the runtime's own words.
void check(cudaError_t status, const char* what);

// The commands; each prints its table to standard output and a summary to standard error.
void describe();
void time_layers(const Question& question, const std::string& backend);
// `device_file`: a GPU that is only described (test/models/devices), for which engines are planned; empty: the one that
// is there.
void time_engines(const Question& question, const std::string& device_file);
void time_fusions(const Question& question, const std::string& device_file);

}  // namespace lockstep::lab
