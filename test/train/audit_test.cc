#include "train/audit.h"

#include <cmath>

#include "test/catch.h"
#include "test/train/small_run.h"
#include "test/train/world.h"

using namespace lockstep;
using testing::world;

TEST_CASE("one bit of one parameter that differs is found by name") {
  const SmallRun run(small_config());
  run.fill(1);
  CHECK_NOTHROW(audit_parameters(world(), run.model));
  if (world().size() == 1) return;
  float& value = run.model.parameter(run.model.parameters().find("fc4.bias"))[7];
  if (world().rank() == world().size() - 1) value = std::nextafter(value, 1000.0F);
  const auto error = agreed_error_of([&] { audit_parameters(world(), run.model); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::internal);
  CHECK_THAT(error->what(), ContainsSubstring("fc4.bias"));
}

TEST_CASE("a place in the gradients is that of a parameter") {
  const SmallRun run(small_config());
  const auto offset = [&](const std::string& name) {
    return static_cast<double>(run.model.layout().offset[static_cast<size_t>(run.model.parameters().find(name))]);
  };
  CHECK(parameter_at(run.model, offset("conv1.bias") + 3) == "conv1.bias");
  CHECK(parameter_at(run.model, offset("fc4.weight")) == "fc4.weight");
  CHECK(parameter_at(run.model, -1) == "an unknown parameter");
  CHECK(parameter_at(run.model, 1e9) == "an unknown parameter");
}
