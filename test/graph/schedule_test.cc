#include "lockstep/graph/schedule.h"

#include <set>

#include "graph/gradients.h"
#include "test/catch.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("forward nodes run first, each phase in graph order") {
  Graph graph = small_net(small_options());
  add_gradients(graph);
  const Schedule schedule = make_schedule(graph);
  for (size_t p = 0; p < schedule.order.size(); ++p) {
    const bool forward = static_cast<int32_t>(p) < schedule.forward_end;
    CHECK((graph.node(schedule.order[p]).phase == Phase::forward) == forward);
    if (p > 0 && static_cast<int32_t>(p) != schedule.forward_end) CHECK(schedule.order[p - 1] < schedule.order[p]);
  }
}

TEST_CASE("a graph without gradients has no backward part") {
  ModelOptions options = small_options();
  options.training = false;
  const Schedule schedule = make_schedule(small_net(options));
  CHECK(schedule.forward_end == static_cast<int32_t>(schedule.order.size()));
  CHECK(schedule.gradient_order.empty());
}

TEST_CASE("nodes whose results nobody reads are left out, with all that only they read") {
  ModelBuilder b({.batch_size = 2, .image_size = 4, .classes = 3});
  const ValueId dead = b.relu(b.images(), "dead");
  b.max_pool(dead, "dead.pool", kThree);
  b.loss(b.linear(b.flatten(b.relu(b.images(), "live"), "flatten"), "fc", {.outputs = 3}), "loss", 1.0);
  const Graph graph = std::move(b).finish();
  std::set<std::string> scheduled;
  for (NodeId n : make_schedule(graph).order) scheduled.insert(graph.node(n).name);
  CHECK(scheduled == std::set<std::string>{"live", "flatten", "fc", "loss"});
}

TEST_CASE("moments are computed although no node reads them") {
  const Graph graph = small_net(small_options());
  const Schedule schedule = make_schedule(graph);
  int moments = 0;
  for (NodeId n : schedule.order) moments += std::holds_alternative<BatchMoments>(graph.node(n).op);
  CHECK(moments == 4);
}

TEST_CASE("every trained parameter's gradient becomes ready once, last layers first") {
  Graph graph = small_net(small_options());
  add_gradients(graph);
  const Schedule schedule = make_schedule(graph);
  std::set<ParameterId> seen(schedule.gradient_order.begin(), schedule.gradient_order.end());
  CHECK(seen.size() == schedule.gradient_order.size());
  for (ParameterId id = 0; id < graph.parameters.size(); ++id) {
    CHECK(seen.count(id) == (graph.parameters[id].trained() ? 1U : 0U));
  }
  REQUIRE(schedule.gradient_ready.size() == schedule.gradient_order.size());
  for (size_t i = 0; i < schedule.gradient_ready.size(); ++i) {
    CHECK(schedule.gradient_ready[i] >= schedule.forward_end);
    if (i > 0) CHECK(schedule.gradient_ready[i - 1] <= schedule.gradient_ready[i]);
    const Node& node = graph.node(schedule.order[static_cast<size_t>(schedule.gradient_ready[i])]);
    const auto makes = [&](ValueId v) { return graph.value(v).gradient_of == schedule.gradient_order[i]; };
    CHECK(std::any_of(node.outputs.begin(), node.outputs.end(), makes));
  }
  CHECK(graph.parameters[schedule.gradient_order.back()].name == "stem.conv.weight");
}
