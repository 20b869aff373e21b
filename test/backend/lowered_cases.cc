#include "test/backend/lowered_cases.h"

#include <algorithm>

#include "test/catch.h"

namespace lockstep::test {
namespace {

bool normalizes(const OpCase& op_case) {
  return std::ranges::any_of(op_case.steps, [](const Step& step) {
    return std::holds_alternative<BatchNorm>(step.op) || std::holds_alternative<BatchNormInference>(step.op);
  });
}

// The case with its images, weights and biases cast first, as lower_precision would.
struct Lowered {
  OpCase op_case;
  std::vector<int> inputs;  // the value that takes the place of each of the case's inputs
  int casts = 0;

  // Where value i of the case is now.
  int place(int i) const {
    const int count = static_cast<int>(inputs.size());
    return i < count ? inputs[static_cast<size_t>(i)] : i + casts;
  }
};

Lowered lowered(const OpCase& op_case, DType to) {
  Lowered result{.op_case = op_case};
  result.op_case.steps.clear();
  const int count = static_cast<int>(op_case.inputs.size());
  for (int i = 0; i < count; ++i) {
    const Fill fill = op_case.inputs[static_cast<size_t>(i)].fill;
    const bool low = fill == Fill::activation || fill == Fill::weight || (fill == Fill::small && !normalizes(op_case));
    if (low) result.op_case.steps.push_back({Cast{to}, {i}});
    result.inputs.push_back(low ? count + result.casts++ : i);
  }
  for (Step step : op_case.steps) {
    for (int& input : step.inputs) input = result.place(input);
    result.op_case.steps.push_back(std::move(step));
  }
  return result;
}

// The gradient of a max pool: rounded images have more equal values, and another one is the first maximum.
bool follows_maximum(const OpCase& op_case, size_t value, size_t values) {
  return std::holds_alternative<MaxPoolGrad>(op_case.steps.back().op) && value + 1 == values;
}

}  // namespace

bool computes_in_float32(const OpCase& op_case) {
  return std::ranges::any_of(op_case.steps, [](const Step& step) {
    return std::holds_alternative<SoftmaxCrossEntropy>(step.op) || std::holds_alternative<BatchMoments>(step.op) ||
           std::holds_alternative<EmbeddingBag>(step.op);
  });
}

void check_lowered(const Backend& backend, const OpCase& op_case, DType compute, double bound) {
  INFO(op_case.name << " in " << dtype_name(compute));
  const ProgramResult expected =
      run_program(*make_backend("reference", {}), case_inputs(op_case, DType::f64), op_case.steps);
  const Lowered low = compute == DType::f32 ? Lowered{.op_case = op_case} : lowered(op_case, compute);
  const ProgramResult actual = run_program(backend, case_inputs(op_case, DType::f32), low.op_case.steps);
  const ProgramResult in_place =
      run_program(backend, case_inputs(op_case, DType::f32), low.op_case.steps, {.in_place = true});
  for (size_t i = 0; i < actual.values.size(); ++i) CHECK((actual.values[i].values == in_place.values[i].values));
  for (size_t i = 0; i < expected.values.size(); ++i) {
    if (expected.values[i].dtype == DType::u8) continue;  // saved blobs are each backend's own
    if (compute != DType::f32 && follows_maximum(op_case, i, expected.values.size())) continue;
    INFO("value " << i);
    const HostTensor& value = actual.values.at(static_cast<size_t>(low.place(static_cast<int>(i))));
    CHECK(relative_error(value.values, expected.values[i].values) < bound);
  }
}

}  // namespace lockstep::test
