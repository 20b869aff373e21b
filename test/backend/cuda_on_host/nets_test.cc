// A whole network on the CUDA backend's kernels, compiled as for a GPU: slices, merged siblings, forward and backward.
#include "test/graph/nets.h"
#include "test/catch.h"
#include "test/graph/net.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

ModelOptions float_options() {
  ModelOptions options = small_options();
  options.dtype = DType::f32;
  return options;
}

}  // namespace

TEST_CASE("a network whose batch norms read and write slices computes what the reference backend computes") {
  const auto cuda = make_backend("cuda", {});
  const auto reference = make_backend("reference", {});
  Net views(*cuda, block_net(float_options()), {});
  REQUIRE(places_of(views.executable(), "alias_concat") > 10);
  Net plain(*cuda, block_net(float_options()), {.rewrites = false});
  Net exact(*reference, block_net(small_options()), {.rewrites = false});
  CHECK(worst_error(plain, exact) < 1e-4);
  CHECK(worst_error(views, exact) < 1e-4);
}
