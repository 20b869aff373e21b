#include "lockstep/graph/graph.h"

#include "lockstep/base/error.h"
#include "test/catch.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

ValueId add_input(Graph& graph, const Shape& shape) {
  return graph.add_value({.name = "x", .desc = {shape}, .role = ValueRole::external});
}

}  // namespace

TEST_CASE("a node's outputs are inferred and named after it") {
  Graph graph;
  const ValueId x = add_input(graph, {2, 3, 8, 8});
  const ValueId y = graph.add_node("relu", Relu{}, {x}).front();
  CHECK(graph.value(y).name == "relu");
  CHECK(graph.value(y).producer == 0);
  CHECK(graph.value(y).desc.shape == Shape{2, 3, 8, 8});

  const auto pooled = graph.add_node("pool", MaxPool{kHalve}, {y});
  CHECK(graph.value(pooled[0]).name == "pool:0");
  CHECK(graph.value(pooled[0]).desc.shape == Shape{2, 3, 4, 4});
  CHECK(graph.value(pooled[1]).name == "pool:1");
  CHECK(graph.value(pooled[1]).producer == 1);
  CHECK(is_well_formed(graph));
}

TEST_CASE("a node that does not fit is refused by its name") {
  Graph graph;
  const ValueId x = add_input(graph, {2, 3, 2, 2});
  try {
    graph.add_node("Mixed_7a.branch3x3_2", AvgPool{{3, 3, 2, 2}}, {x});
    FAIL("a window of 3 fits into 2 pixels");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::config);
    CHECK_THAT(e.what(), ContainsSubstring("Mixed_7a.branch3x3_2: AvgPool: a window of 3 does not fit into H = 2"));
  }
  CHECK(graph.nodes.empty());
}

TEST_CASE("readers come in order and once each") {
  Graph graph;
  const ValueId x = add_input(graph, {2, 3, 2, 2});
  const ValueId a = graph.add_node("a", Relu{}, {x}).front();
  graph.add_node("b", Add{}, {a, a});
  graph.add_node("c", Add{}, {a, x});
  const auto readers = readers_of(graph);
  CHECK(readers[static_cast<size_t>(x)] == std::vector<NodeId>{0, 2});
  CHECK(readers[static_cast<size_t>(a)] == std::vector<NodeId>{1, 2});
}

TEST_CASE("removed nodes leave the others well formed") {
  Graph graph;
  const ValueId x = add_input(graph, {2, 3, 2, 2});
  const ValueId dead = graph.add_node("dead", Relu{}, {x}).front();
  const ValueId a = graph.add_node("a", Relu{}, {x}).front();
  const ValueId b = graph.add_node("b", Add{}, {a, x}).front();
  remove_nodes(graph, {true, false, false});
  REQUIRE(graph.nodes.size() == 2);
  CHECK(graph.value(dead).producer == -1);
  CHECK(graph.value(a).producer == 0);
  CHECK(graph.value(b).producer == 1);
  CHECK(is_well_formed(graph));
}
