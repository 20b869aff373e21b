// The CUDA backend against the reference backend in float64, over the shared operation cases, in every precision. Left
// out where there is no usable GPU.
#include <algorithm>
#include <cmath>

#include "test/backend/op_cases.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// |a - b| / |b| in the Euclidean norm, or |a| where b is zero.
double relative_error(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / (norm > 0 ? norm : 1));
}

bool computes_in_float32(const OpCase& op_case) {
  return std::ranges::any_of(op_case.steps, [](const Step& step) {
    return std::holds_alternative<SoftmaxCrossEntropy>(step.op) || std::holds_alternative<BatchMoments>(step.op) ||
           std::holds_alternative<EmbeddingBag>(step.op);
  });
}

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
bool follows_maximum(const OpCase& op_case, size_t value) {
  const size_t first_output = op_case.inputs.size();
  return std::holds_alternative<MaxPool>(op_case.steps[0].op) && value > first_output;
}

void check(const Backend& gpu, const OpCase& op_case, DType compute, double bound) {
  INFO(op_case.name << " in " << dtype_name(compute));
  const ProgramResult expected =
      run_program(*make_backend("reference", {}), case_inputs(op_case, DType::f64), op_case.steps);
  const Lowered low = compute == DType::f32 ? Lowered{.op_case = op_case} : lowered(op_case, compute);
  const ProgramResult actual = run_program(gpu, case_inputs(op_case, DType::f32), low.op_case.steps);
  const ProgramResult in_place =
      run_program(gpu, case_inputs(op_case, DType::f32), low.op_case.steps, {.in_place = true});
  for (size_t i = 0; i < actual.values.size(); ++i) CHECK((actual.values[i].values == in_place.values[i].values));
  for (size_t i = 0; i < expected.values.size(); ++i) {
    if (expected.values[i].dtype == DType::u8) continue;  // saved blobs are each backend's own
    if (compute != DType::f32 && follows_maximum(op_case, i)) continue;
    INFO("value " << i);
    const HostTensor& value = actual.values.at(static_cast<size_t>(low.place(static_cast<int>(i))));
    CHECK(relative_error(value.values, expected.values[i].values) < bound);
  }
}

// Where kernels run on the host (cuda_on_host), the reference backend stands in for cuDNN and cuBLAS: nothing to
// compare.
bool left_to_libraries(const OpCase& op_case) {
#ifdef LOCKSTEP_KERNELS_ON_HOST
  return std::holds_alternative<Conv2d>(op_case.steps[0].op) || std::holds_alternative<Linear>(op_case.steps[0].op);
#else
  return op_case.steps.empty();
#endif
}

struct Precision {
  DType compute;
  bool tf32;
  double bound;  // a few roundings to 24, 11, 8 and 11 bits
};
constexpr Precision kPrecisions[] = {
    {DType::f32, false, 1e-5}, {DType::f32, true, 2e-3}, {DType::bf16, false, 2e-2}, {DType::f16, false, 3e-3}};

}  // namespace

TEST_CASE("operations on a GPU agree with the reference backend, in every precision", "[gpu]") {
  if (!gpu_unavailable_reason().empty()) {
    WARN("skipped, no usable GPU: " << gpu_unavailable_reason());
    return;
  }
  for (const Precision& precision : kPrecisions) {
    const auto gpu = make_backend("cuda", {.tf32 = precision.tf32});
    for (const OpCase& op_case : op_cases()) {
      if (left_to_libraries(op_case) || (precision.compute != DType::f32 && computes_in_float32(op_case))) continue;
      check(*gpu, op_case, precision.compute, precision.bound);
    }
  }
}
