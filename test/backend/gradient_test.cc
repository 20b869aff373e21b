// Every gradient operation against central differences of its forward operation, in float64: for a random direction v,
// <gradient, v> must equal <dy, (f(x + h v) - f(x - h v)) / 2h>.
#include <cmath>
#include <numeric>
#include <set>

#include "lockstep/base/random.h"
#include "test/backend/op_cases.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::vector<double> random_direction(size_t size, uint64_t key) {
  RandomStream random(key);
  std::vector<double> direction(size);
  for (double& value : direction) value = random.normal();
  return direction;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// (f(x + h v) - f(x - h v)) / 2h, where f is the case's first operation as a function of one input.
std::vector<double> directional_derivative(const Backend& backend, const OpCase& op_case, size_t input,
                                           const std::vector<double>& direction) {
  constexpr double kStep = 1e-6;
  std::vector<HostTensor> inputs = case_inputs(op_case, DType::f64);
  const std::vector<double> centre = inputs[input].values;
  auto evaluate = [&](double step) {
    for (size_t i = 0; i < centre.size(); ++i) inputs[input].values[i] = centre[i] + step * direction[i];
    // The loss is the second output of its operation, after the probabilities.
    const size_t output = inputs.size() + (op_case.dy < 0 ? 1 : 0);
    return run_program(backend, inputs, std::span(op_case.steps).first(1)).values[output].values;
  };
  std::vector<double> above = evaluate(kStep);
  const std::vector<double> below = evaluate(-kStep);
  for (size_t i = 0; i < above.size(); ++i) above[i] = (above[i] - below[i]) / (2 * kStep);
  return above;
}

template <size_t... I>
std::set<std::string_view> all_op_names(std::index_sequence<I...>) {
  return {op_name(Op(std::in_place_index<I>))...};
}

}  // namespace

TEST_CASE("every gradient operation agrees with differences of its forward operation") {
  const auto backend = make_backend("reference", {.threads = 2});
  for (const OpCase& op_case : op_cases()) {
    if (op_case.adjoints.empty()) continue;
    const ProgramResult result = run_program(*backend, case_inputs(op_case, DType::f64), op_case.steps);
    const std::vector<double> dy =
        op_case.dy < 0 ? std::vector{1.0} : result.values[static_cast<size_t>(op_case.dy)].values;
    for (const Adjoint& adjoint : op_case.adjoints) {
      INFO(op_case.name << ", input " << adjoint.input);
      const std::vector<double>& gradient = result.values[static_cast<size_t>(adjoint.gradient)].values;
      const std::vector<double> direction = random_direction(gradient.size(), fnv1a64(op_case.name));
      const std::vector<double> change =
          directional_derivative(*backend, op_case, static_cast<size_t>(adjoint.input), direction);
      const double scale = std::sqrt(dot(dy, dy) * dot(change, change));
      CHECK(scale > 0);
      CHECK(std::abs(dot(gradient, direction) - dot(dy, change)) <= 1e-8 * scale);
    }
  }
}

TEST_CASE("the shared cases have unique names and leave no operation out") {
  std::set<std::string_view> missing = all_op_names(std::make_index_sequence<std::variant_size_v<Op>>());
  std::set<std::string> names;
  for (const OpCase& op_case : op_cases()) {
    CHECK(names.insert(op_case.name).second);
    for (const Step& step : op_case.steps) missing.erase(op_name(step.op));
  }
  // run_program inserts Reorder where a backend wants it; the CPU has no other element type to cast to; synchronized
  // batch norm is sync_batch_norm_test.cc's, and what not every backend has fused_operations_test.cc's
  // and pixels_test.cc's.
  CHECK(missing == std::set<std::string_view>{"AvgPoolStatistics",
                                              "BatchNormGradApply",
                                              "BatchNormGradOfSums",
                                              "BatchNormGradSums",
                                              "BatchNormMaxPool",
                                              "BatchNormMaxPoolGrad",
                                              "BatchNormMaxPoolGradOfSums",
                                              "BatchNormOfSums",
                                              "BatchNormOfSumsGrad",
                                              "BatchNormStatistics",
                                              "Cast",
                                              "CastMany",
                                              "Conv2dGradInputNorm",
                                              "Conv2dNormalizedGradWeights",
                                              "Conv2dStatistics",
                                              "MaxPoolGradNormSums",
                                              "MaxPoolGradSum",
                                              "PreparePixels",
                                              "Reorder",
                                              "SumOverRanks",
                                              "SyncBatchNorm",
                                              "SyncBatchNormGrad",
                                              "SyncBatchNormGradSums",
                                              "SyncBatchNormSums"});
}
