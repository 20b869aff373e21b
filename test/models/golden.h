// Reference values that another implementation computed (test/golden/README.md), the same quantities computed here,
// and the measure by which they are compared.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/graph/model_builder.h"

namespace lockstep::test {

// The quantities of one computation, named as in the file: "eval/logits", "train/loss", "train/grad_norm", ...
using GoldenValues = std::map<std::string, std::vector<double>>;

struct GoldenCase {
  std::string model, salt;
  ModelOptions options;
  double learning_rate = 0, weight_decay = 0;
  std::vector<std::string> parameters, buffers;       // the rows of the lists
  std::map<std::string, std::vector<float>> weights;  // by name, instead of those of the generator
  GoldenValues exact;                                 // in float64
  std::map<std::string, GoldenValues> peers;          // in float32, by variant
};

GoldenCase read_golden(const std::string& file_name);
// The path of a file beside the others.
std::string golden_path(const std::string& file_name);

// Evaluates once, then takes one step of SGD, with the weights, images and labels of the case.
// `dtype`: of the parameters; `compute`: of the layers, where they are float32.
GoldenValues compute_golden(const GoldenCase& golden, const Backend& backend, DType dtype, DType compute = DType::f32);

// The logits of an evaluation with these weights and images.
std::vector<double> evaluation_logits(const GoldenCase& golden, const Backend& backend, DType dtype);

// Errors of `values` against golden.exact, by quantity. A vector has its relative L2 error; a list over parameters the
// median (".median") and the largest (".largest") of its rows' errors. A row's error is divided by its size, or by a
// thousandth of what its elements have on average, if that is more.
std::map<std::string, double> golden_errors(const GoldenCase& golden, const GoldenValues& values);

}  // namespace lockstep::test
