// The shared table of operations at the shapes that occur in the bundled models, and at awkward ones. Every backend's
// tests walk it: results against the reference backend, gradients against forward operations.
#pragma once

#include <string>
#include <vector>

#include "test/backend/op_runner.h"

namespace lockstep::test {

// What an input holds, which decides how it is filled and whether it is of the case's element type.
enum class Fill {
  activation,     // normal
  weight,         // normal, scaled so that sums over the fan-in stay near 1
  positive,       // uniform in [0.5, 1.5): scales and variances
  small,          // normal / 10: shifts and means
  label,          // i32 below CaseInput::classes
  ids,            // i32 below CaseInput::classes, in each row ended by -1 at another place, what follows not to be read
  sample_weight,  // 1, 0.5 and 0 in turn
  step,           // Dropout's i32[4]
};

struct CaseInput {
  Shape shape;
  Fill fill = Fill::activation;
  int64_t classes = 0;
};

// Value `gradient` should be the derivative of <dy, output 0 of the first step> with respect to input `input`.
struct Adjoint {
  int input = 0;
  int gradient = 0;
};

// A program (see Step) of one operation, followed by its gradients where it has any.
struct OpCase {
  std::string name;  // unique
  std::vector<CaseInput> inputs;
  std::vector<Step> steps;
  int dy = -1;  // the input that is the output's gradient; -1: the output is a scalar and dy is 1
  std::vector<Adjoint> adjoints;
};

std::vector<OpCase> op_cases();

// The case's inputs in float32 or float64: the same numbers, each exact in float32, on every machine.
std::vector<HostTensor> case_inputs(const OpCase& op_case, DType dtype);

}  // namespace lockstep::test
