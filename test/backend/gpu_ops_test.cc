// The CUDA backend against the reference backend in float64, over the shared operation cases: what a machine with a GPU
// has to show.
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

// The backend, or nothing and a word why.
std::unique_ptr<Backend> gpu_or_skip() {
  if (gpu_obstacle().empty()) return make_backend("cuda", {});
  WARN("skipped, no usable GPU: " << gpu_obstacle());
  return nullptr;
}

}  // namespace

TEST_CASE("a GPU in float32 computes what the reference backend computes", "[gpu]") {
  const auto gpu = gpu_or_skip();
  if (!gpu) return;
  const auto reference = make_backend("reference", {.threads = 1});
  for (const OpCase& op_case : op_cases()) {
    INFO(op_case.name);
    const ProgramResult expected = run_program(*reference, case_inputs(op_case, DType::f64), op_case.steps);
    const ProgramResult actual = run_program(*gpu, case_inputs(op_case, DType::f32), op_case.steps);
    REQUIRE(actual.values.size() == expected.values.size());
    for (size_t i = 0; i < expected.values.size(); ++i) {
      if (expected.values[i].dtype == DType::u8) continue;  // saved blobs are each backend's own
      INFO("value " << i);
      REQUIRE(actual.values[i].shape == expected.values[i].shape);
      CHECK(relative_error(actual.values[i].values, expected.values[i].values) < 1e-5);
    }
  }
}
