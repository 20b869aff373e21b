#include "graph/passes/rewrite.h"

#include "lockstep/backend/deferred_backend.h"
#include "lockstep/base/error.h"
#include "test/catch.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

const Value& value_of(const Graph& graph, const std::string& name) { return graph.value(find_value(graph, name)); }

}  // namespace

TEST_CASE("what batch norms write for a concatenation lies inside it, at its place") {
  const auto cpu = make_backend("cpu", {.threads = 1});
  const Net net(*cpu, block_net(float_options()), {});
  const Graph& graph = net.graph();
  const ValueId cat = find_value(graph, "cat");
  CHECK(value_of(graph, "one.relu").view_of == cat);
  CHECK(value_of(graph, "two_2b.relu").view_of == cat);
  CHECK(value_of(graph, "two_2b.relu").view_channel == 32);
  CHECK(value_of(graph, "max:0").view_of == -1);  // the library's pool writes dense tensors only
  CHECK(value_of(graph, "pooled.relu").view_channel == 80);
  const auto address = [&](const std::string& name) {
    return static_cast<char*>(net.executable().address(find_value(graph, name), net.arenas()));
  };
  CHECK(address("pooled.relu") == address("cat") + 80 * 81 * sizeof(float));
}

TEST_CASE("gradients of merged siblings lie inside the gradient of the whole, and nothing is copied for them") {
  const auto cpu = make_backend("cpu", {.threads = 1});
  const Net net(*cpu, block_net(float_options()), {});
  const Executable& e = net.executable();
  int views = 0;
  for (size_t p = 0; p < e.schedule().order.size(); ++p) {
    const Node& node = e.graph().node(e.schedule().order[p]);
    if (std::holds_alternative<Slice>(node.op) || node.name == "one.conv.merged.grad_join") {
      INFO(node.name);
      const bool to_max_pool = node.name == "cat.grad3";
      CHECK((e.kernel(p).implementation() == "view") != to_max_pool);
      views += e.kernel(p).implementation() == "view";
    }
  }
  CHECK(views > 5);
}

TEST_CASE("a backend that reads no slices gets no views") {
  const auto reference = make_backend("reference", {.threads = 1});
  const Net net(*reference, block_net(small_options()), {});
  CHECK(matches_of(net.executable(), "alias_concat") == 0);
}

TEST_CASE("views change neither outputs nor gradients") {
  const auto cpu = make_backend("cpu", {.threads = 2});
  const auto reference = make_backend("reference", {.threads = 1});
  Net views(*cpu, block_net(float_options()), {});
  REQUIRE(matches_of(views.executable(), "alias_concat") > 10);
  Net plain(*cpu, block_net(float_options()), {.rewrites = false});
  Net exact(*reference, block_net(small_options()), {.rewrites = false});
  CHECK(worst_error(views, exact) < 1e-4);
  CHECK(worst_error(views, plain) < 1e-4);
}

TEST_CASE("the graph whose order is checked has the views of a device's, and computes the same") {
  const auto deferred = make_deferred_backend(make_backend("cpu", {.threads = 1}));
  const auto cpu = make_backend("cpu", {.threads = 1});
  Net checked(*deferred, block_net(float_options()), {});
  Net direct(*cpu, block_net(float_options()), {.recompute = false});
  CHECK(matches_of(checked.executable(), "alias_concat") == matches_of(direct.executable(), "alias_concat"));
  CHECK(matches_of(checked.executable(), "merge_siblings") == matches_of(direct.executable(), "merge_siblings"));
  CHECK(matches_of(checked.executable(), "alias_concat") > 10);
  CHECK(worst_error(checked, direct) == 0);
}
