// Plans of convolutions that are timed, on the fake device: cuDNN's own, each with a time that FAKE_GPU_PLANS gives it.
#include <cstdlib>
#include <set>

#include "backend/cuda/conv_plan.h"
#include "lockstep/base/error.h"
#include "test/catch.h"
#include "test/fake_gpu/order.h"

using namespace lockstep;
using cuda::ConvKind;
using cuda::ConvPlanner;
using cuda::ConvProblem;
using cuda::Fusion;

namespace {

const ConvProblem kPlain{.kind = ConvKind::grad_weights,
                         .dtype = DType::f16,
                         .window = {.kernel_h = 3, .kernel_w = 3, .pad_h = 1, .pad_w = 1},
                         .x = {2, 16, 8, 8},
                         .weights = {16, 16, 3, 3},
                         .y = {2, 16, 8, 8}};

class Setup {
 public:
  explicit Setup(const char* plans) {
    ::setenv("FAKE_GPU_PLANS", plans, 1);
    REQUIRE(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
  }
  ~Setup() {
    (void)cudnnDestroy(handle);
    ::unsetenv("FAKE_GPU_PLANS");
  }
  Setup(const Setup&) = delete;
  Setup& operator=(const Setup&) = delete;

  cudnnHandle_t handle = nullptr;

 private:
  const fake_gpu::InOrder in_order_{"eager"};
};

std::string first_plan(cudnnHandle_t handle, const ConvProblem& problem) {
  return ConvPlanner(handle).plan(problem)->name();
}

}  // namespace

TEST_CASE("the fastest of the first plans is taken, fused or not, and so with the choice of another planner") {
  ConvProblem fused = kPlain;
  fused.kind = ConvKind::forward;
  fused.fusion = Fusion::statistics;
  std::set<std::string> fastest;
  for (const char* const seed : {"1", "2", "3", "4"}) {
    const Setup setup(seed);
    ConvPlanner planner(setup.handle);
    planner.time_plans(60);
    REQUIRE(planner.can(fused));
    fastest.insert(planner.plan(kPlain)->name());
    CHECK(planner.plan(kPlain) == planner.plan(kPlain));
    (void)planner.plan(fused);
    const PlanTuning::Result result = planner.result();
    CHECK(result.kernels == 4);
    CHECK(result.shapes == 2);
    CHECK(result.timed > 2);
    CHECK(result.left + result.failed + result.taken == 0);
    CHECK(result.first >= result.fastest);
    // Three kernels of one shape and one of another; each plan takes 1 to 2 ms.
    CHECK(result.fastest >= 4e-3);
    CHECK(result.first < 8e-3);

    ConvPlanner other(setup.handle);
    other.take(planner.choices());
    CHECK(other.plan(kPlain)->name() == planner.plan(kPlain)->name());
    CHECK(other.plan(fused)->name() == planner.plan(fused)->name());
    CHECK(other.choices() == planner.choices());
    CHECK(other.result().taken == 2);
    CHECK(other.result().timed == 0);
  }
  CHECK(fastest.size() > 1);
}

TEST_CASE("when the time is over, the first plans are taken, and the choices say so") {
  const Setup setup("1");
  ConvPlanner planner(setup.handle);
  planner.time_plans(0);
  const std::string first = planner.plan(kPlain)->name();
  CHECK(first == first_plan(setup.handle, kPlain));
  CHECK(planner.choices() == first + "\t" + kPlain.to_string() + "\n");
  CHECK(planner.result().left == 1);
  CHECK(planner.result().timed == 0);
}

TEST_CASE("plans that do not run are not taken, unless none does") {
  const auto timed_with = [](const char* plans) {
    const Setup setup(plans);
    ConvPlanner planner(setup.handle);
    planner.time_plans(60);
    (void)planner.plan(kPlain);
    return planner.result();
  };
  const PlanTuning::Result some = timed_with("1:2"), all = timed_with("1:1");
  CHECK(some.failed > 0);
  CHECK(some.failed < some.timed);
  CHECK(some.left == 0);
  CHECK(some.fastest > 0);
  CHECK(all.failed == all.timed);
  CHECK(all.left == 1);
}

TEST_CASE("choices that cannot be read, or that cuDNN does not have, are refused") {
  const Setup setup("1");
  const auto taken = [&](const std::string& choices) {
    ConvPlanner planner(setup.handle);
    planner.take(choices);
    (void)planner.plan(kPlain);
  };
  const std::string name = first_plan(setup.handle, kPlain), line = name + "\t" + kPlain.to_string() + "\n";
  CHECK_NOTHROW(taken(line));
  CHECK_THROWS_WITH(taken(line + line),
                    ContainsSubstring("there are two plans for gradient by weights f16 x [2,16,8,8]"));
  CHECK_THROWS_WITH(taken(name + "\n"), ContainsSubstring("this line is not a plan and its shape: " + name));
  CHECK_THROWS_WITH(taken("\n"), ContainsSubstring("is not a plan and its shape"));
  CHECK_THROWS_WITH(taken("eng0_made_up\t" + kPlain.to_string()),
                    ContainsSubstring("cuDNN has no plan eng0_made_up for gradient by weights f16"));
}
