#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/group/parameter_audit.h"
#include "test/catch.h"
#include "test/mpi_main.h"

using namespace lockstep;
using lockstep::testing::world;

TEST_CASE("an audit passes equal replicas and names the parameter and rank that differ") {
  std::vector<float> weights(1000, 0.5F), biases(10, 0.25F);
  const auto audit = [&] {
    const std::vector<AuditedRange> ranges = {{"fc.weight", std::as_bytes(std::span(weights))},
                                              {"fc.bias", std::as_bytes(std::span(biases))}};
    audit_ranges(world(), {"an audit"}, ranges);
  };
  audit();
  if (world().size() == 1) return;
  const int odd = world().size() - 1;
  if (world().rank() == odd) biases[3] = 0.25000003F;
  try {
    audit();
    FAIL("the difference was not noticed");
  } catch (const AgreedError& error) {
    CHECK(error.code() == ExitCode::internal);
    CHECK_THAT(error.what(),
               ContainsSubstring("fc.bias is not the same on every rank: " + world().describe(odd) + " differs"));
  }
}
