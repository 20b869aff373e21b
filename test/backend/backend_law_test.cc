// What every backend promises, on the shared operation cases; and that the reference backend is fit to be compared to.
#include <algorithm>
#include <cmath>
#include <limits>

#include "test/backend/op_cases.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

double largest(const std::vector<double>& values) {
  double result = 0;
  for (double value : values) result = std::max(result, std::abs(value));
  return result;
}

// The largest difference of two tensors over the largest value; infinite when it is not a number anywhere.
double relative_difference(const HostTensor& a, const HostTensor& b) {
  double difference = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    const double d = std::abs(a.values[i] - b.values[i]);
    if (std::isnan(d)) return std::numeric_limits<double>::infinity();
    difference = std::max(difference, d);
  }
  return difference / std::max(largest(b.values), 1e-30);
}

}  // namespace

TEST_CASE("the reference backend computes the same in float32 as in float64") {
  const auto backend = make_backend("reference", {.threads = 2});
  for (const OpCase& op_case : op_cases()) {
    INFO(op_case.name);
    const auto f32 = run_program(*backend, case_inputs(op_case, DType::f32), op_case.steps);
    const auto f64 = run_program(*backend, case_inputs(op_case, DType::f64), op_case.steps);
    REQUIRE(f32.values.size() == f64.values.size());
    for (size_t i = 0; i < f32.values.size(); ++i) {
      INFO("value " << i);
      CHECK(f32.values[i].shape == f64.values[i].shape);
      CHECK(relative_difference(f32.values[i], f64.values[i]) < 1e-6);
    }
  }
}

TEST_CASE("the number of threads changes no bit of the reference backend's results") {
  const auto one = make_backend("reference", {.threads = 1});
  const auto three = make_backend("reference", {.threads = 3});
  for (const OpCase& op_case : op_cases()) {
    INFO(op_case.name);
    const auto inputs = case_inputs(op_case, DType::f32);
    const auto a = run_program(*one, inputs, op_case.steps);
    const auto b = run_program(*three, inputs, op_case.steps);
    for (size_t i = 0; i < a.values.size(); ++i)
      CHECK((a.values[i].values == b.values[i].values));  // too long to print
  }
}

TEST_CASE("operations that may work in place give the same bits there") {
  for (std::string_view name : backend_names()) {
    const auto backend = make_backend(name, {.threads = 2});
    for (const OpCase& op_case : op_cases()) {
      INFO(name << ": " << op_case.name);
      const auto inputs = case_inputs(op_case, DType::f32);
      const auto apart = run_program(*backend, inputs, op_case.steps);
      const auto in_place = run_program(*backend, inputs, op_case.steps, {.in_place = true});
      for (size_t i = 0; i < apart.values.size(); ++i) {
        CHECK((apart.values[i].values == in_place.values[i].values));
      }
    }
  }
}
