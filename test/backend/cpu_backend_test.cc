// The CPU backend against the reference backend in float64, over the shared operation cases.
#include <cmath>

#include "lockstep/backend/update.h"
#include "lockstep/base/error.h"
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

// The same program behind a window of one pixel, which hands every image on unchanged but in blocks of channels, the
// format that the CPU backend's convolutions and pools write.
OpCase in_blocks(const OpCase& op_case) {
  OpCase result = op_case;
  result.steps.clear();
  const int inputs = static_cast<int>(op_case.inputs.size());
  std::vector<int> number(op_case.inputs.size());
  int next = inputs;
  for (int i = 0; i < inputs; ++i) {
    const CaseInput& input = op_case.inputs[static_cast<size_t>(i)];
    const bool image = input.shape.rank() == 4 && input.fill == Fill::activation;
    if (image) result.steps.push_back({AvgPool{}, {i}});
    number[static_cast<size_t>(i)] = image ? next++ : i;
  }
  for (Step step : op_case.steps) {
    for (int& input : step.inputs) input = input < inputs ? number[static_cast<size_t>(input)] : input + next - inputs;
    result.steps.push_back(std::move(step));
  }
  return result;
}

void check_against_reference(const Backend& cpu, const OpCase& op_case) {
  INFO(op_case.name);
  static const auto reference = make_backend("reference", {.threads = 1});
  const ProgramResult expected = run_program(*reference, case_inputs(op_case, DType::f64), op_case.steps);
  const ProgramResult actual = run_program(cpu, case_inputs(op_case, DType::f32), op_case.steps);
  REQUIRE(actual.values.size() == expected.values.size());
  for (size_t i = 0; i < expected.values.size(); ++i) {
    if (expected.values[i].dtype == DType::u8) continue;  // saved blobs are each backend's own
    INFO("value " << i);
    REQUIRE(actual.values[i].shape == expected.values[i].shape);
    CHECK(relative_error(actual.values[i].values, expected.values[i].values) < 1e-5);
  }
}

}  // namespace

TEST_CASE("the cpu backend computes what the reference backend computes, on plain tensors") {
  const int threads = GENERATE(1, 2);
  const auto cpu = make_backend("cpu", {.threads = threads});
  INFO(threads << " threads");
  for (const OpCase& op_case : op_cases()) check_against_reference(*cpu, op_case);
}

TEST_CASE("the cpu backend computes what the reference backend computes, on blocked tensors") {
  const int threads = GENERATE(1, 2);
  const auto cpu = make_backend("cpu", {.threads = threads});
  INFO(threads << " threads");
  for (const OpCase& op_case : op_cases()) check_against_reference(*cpu, in_blocks(op_case));
}
