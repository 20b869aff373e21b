#include "graph/passes/rewrite.h"

#include "test/catch.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("rewrites keep the parameters and what the caller reads") {
  for (const Rewrite& rewrite : rewrites()) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      Graph graph = random_net(seed, {.batch_size = 2, .image_size = 4, .classes = 3, .aux_weight = 0.3});
      const Graph before = graph;
      rewrite.apply(graph);
      INFO(rewrite.name << ", seed " << seed);
      CHECK(is_well_formed(graph));
      REQUIRE(graph.parameters.size() == before.parameters.size());
      for (ParameterId id = 0; id < graph.parameters.size(); ++id) {
        CHECK(graph.parameters[id].name == before.parameters[id].name);
      }
      REQUIRE(graph.losses.size() == before.losses.size());
      for (const LossHead& head : graph.losses) CHECK(graph.value(head.loss).producer >= 0);
      CHECK(rewrite.apply(graph) == 0);  // nothing is left to do
    }
  }
}
