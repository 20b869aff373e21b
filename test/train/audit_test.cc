#include "lockstep/train/audit.h"

#include <limits>

#include "test/catch.h"
#include "test/train/small_run.h"
#include "test/train/world.h"

using namespace lockstep;
using testing::world;

namespace {

std::span<float> gradient_of(const SmallRun& run, const std::string& name) {
  const ParameterId id = run.program.parameters().find(name);
  float* gradients = run.program.state().gradients.as<float>();
  return {gradients + run.program.layout().offset[static_cast<size_t>(id)],
          static_cast<size_t>(run.program.parameters()[id].shape.elements())};
}

}  // namespace

TEST_CASE("one bit of one parameter that differs is found by name") {
  const SmallRun run(small_config());
  run.fill(1);
  CHECK_NOTHROW(audit_parameters(world(), run.program, 30));
  if (world().size() == 1) return;
  float& value = run.program.parameter(run.program.parameters().find("fc4.bias"))[7];
  if (world().rank() == world().size() - 1) value = std::nextafter(value, 1000.0F);
  const auto error = agreed_error_of([&] { audit_parameters(world(), run.program, 30); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::internal);
  CHECK_THAT(error->what(), ContainsSubstring("fc4.bias"));
}

TEST_CASE("the first gradient that is not finite is the one that backward finished first") {
  const SmallRun run(small_config());
  CHECK(first_bad_gradient(run.program) == "an unknown parameter");
  gradient_of(run, "conv1.bias")[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK(first_bad_gradient(run.program) == "conv1.bias");
  gradient_of(run, "fc4.weight")[100] = -std::numeric_limits<float>::infinity();
  CHECK(first_bad_gradient(run.program) == "fc4.weight");
}
