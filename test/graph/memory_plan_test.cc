#include "lockstep/graph/memory_plan.h"

#include <numeric>

#include "graph/formats.h"
#include "graph/gradients.h"
#include "lockstep/base/error.h"
#include "test/catch.h"
#include "test/graph/fake_backend.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// 1 KiB of floats.
const Shape kKiB{1, 1, 16, 16};

// A graph with everything that plan_memory asks for; every step wants `workspace` bytes.
struct Case {
  Graph graph;
  Schedule schedule;
  ParameterLayout layout;
  std::vector<size_t> storage, workspaces;
  MemoryPlan plan;

  explicit Case(Graph g, size_t workspace = 0) : graph(std::move(g)) {
    const FakeBackend backend;
    schedule = make_schedule(graph);
    std::vector<ParameterId> order = schedule.gradient_order;
    if (order.empty()) {
      for (ParameterId id = 0; id < graph.parameters.size(); ++id) {
        if (graph.parameters[id].trained()) order.push_back(id);
      }
    }
    layout = lay_out_parameters(graph.parameters, order);
    for (const Value& v : graph.values) storage.push_back(backend.storage_bytes(v.desc));
    workspaces.assign(schedule.order.size(), workspace);
    plan = plan_memory(input());
  }
  PlanInput input() const { return {graph, schedule, layout, storage, workspaces}; }
  const Placement& at(ValueId v) const { return plan.values[static_cast<size_t>(v)]; }
  bool same_memory(ValueId a, ValueId b) const {
    return at(a).arena == at(b).arena && at(a).offset_bytes == at(b).offset_bytes;
  }
  bool same_class(ValueId a, ValueId b) const {
    return plan.alias_class[static_cast<size_t>(a)] == plan.alias_class[static_cast<size_t>(b)];
  }
};

struct Chain {
  Graph graph;
  ValueId x = graph.add_value({.name = "x", .desc = {kKiB}, .role = ValueRole::external});

  ValueId add(const std::string& name, Op op, std::vector<ValueId> inputs) {
    return graph.add_node(name, std::move(op), std::move(inputs)).front();
  }
  ValueId relu(const std::string& name, ValueId in) { return add(name, Relu{}, {in}); }
  // Not in place, same shape.
  ValueId pool(const std::string& name, ValueId in) { return add(name, AvgPool{kThree}, {in}); }
  Case keep(ValueId last) {
    graph.value(last).kept = true;
    return Case(std::move(graph));
  }
};

}  // namespace

TEST_CASE("operations work in place where nobody reads the input later") {
  Chain c;
  const ValueId a = c.relu("a", c.x), b = c.relu("b", a), d = c.relu("d", b);
  const Case planned = c.keep(d);
  CHECK(planned.at(c.x).arena == Arena::external);  // the caller's memory is never written
  CHECK(planned.at(a).arena == Arena::activations);
  CHECK(planned.same_memory(a, b));
  CHECK(planned.same_memory(b, d));
  CHECK(planned.plan.activation_bytes == 1024);
  CHECK_NOTHROW(verify_plan(planned.input(), planned.plan));
}

TEST_CASE("an input that is read again is not overwritten") {
  Chain c;
  const ValueId a = c.pool("a", c.x), b = c.relu("b", a);
  const ValueId sum = c.add("sum", Add{}, {b, a});
  const Case planned = c.keep(sum);
  CHECK_FALSE(planned.same_class(a, b));
  CHECK(planned.same_class(b, sum));
  CHECK(planned.plan.activation_bytes == 2048);
}

TEST_CASE("an input that is read through two operands is not overwritten") {
  Chain c;
  const ValueId a = c.pool("a", c.x);
  const ValueId sum = c.add("sum", Add{}, {a, a});
  const Case planned = c.keep(sum);
  CHECK_FALSE(planned.same_class(a, sum));
}

TEST_CASE("kept values are not overwritten, not even through a reshape") {
  Chain c;
  const ValueId a = c.pool("a", c.x);
  const ValueId flat = c.add("flat", Reshape{{1, 256}}, {a});
  const ValueId b = c.relu("b", flat), d = c.relu("d", b);
  c.graph.value(a).kept = true;
  const Case planned = c.keep(d);
  CHECK(planned.same_memory(a, flat));
  CHECK_FALSE(planned.same_class(flat, b));
  CHECK(planned.same_class(b, d));
  CHECK_NOTHROW(verify_plan(planned.input(), planned.plan));
}

TEST_CASE("a reshape of a reshape lies where the first value lies") {
  Chain c;
  const ValueId a = c.pool("a", c.x);
  const ValueId r1 = c.add("r1", Reshape{{1, 256}}, {a});
  const ValueId r2 = c.add("r2", Reshape{{1, 16, 16, 1}}, {r1});
  const ValueId b = c.relu("b", r2);
  const ValueId again = c.pool("again", a);  // a is read after b: b may not work in place on its alias
  const ValueId flat_b = c.add("flat_b", Reshape{kKiB}, {b});
  const Case planned = c.keep(c.add("sum", Add{}, {flat_b, again}));
  CHECK(planned.same_memory(a, r1));
  CHECK(planned.same_memory(a, r2));
  CHECK_FALSE(planned.same_class(r2, b));
  CHECK(planned.same_memory(b, flat_b));
}

TEST_CASE("a reshape of what the caller owns lies in the caller's memory") {
  Chain c;
  const ValueId flat = c.add("flat", Reshape{{1, 256}}, {c.x});
  const ValueId b = c.relu("b", flat);
  const Case planned = c.keep(b);
  CHECK(planned.same_memory(c.x, flat));
  CHECK(planned.at(flat).arena == Arena::external);
  CHECK(planned.at(b).arena == Arena::activations);
}

TEST_CASE("memory is taken over by later values once nobody reads it") {
  Chain c;
  ValueId last = c.x;
  for (int i = 0; i < 10; ++i) last = c.pool(fmt::format("p{}", i), last);
  const Case planned = c.keep(last);
  CHECK(planned.plan.activation_bytes == 2048);  // two neighbours of the chain at a time
}

TEST_CASE("a workspace lives for its own step only and beside its operands") {
  Chain c;
  const ValueId a = c.pool("a", c.x);
  c.graph.value(c.pool("b", a)).kept = true;
  const Case planned(std::move(c.graph), 1000);
  REQUIRE(planned.plan.workspaces.size() == 2);
  // a and the workspace; then a, b and the workspace of the second step, which reuses the first one's place
  CHECK(planned.plan.activation_bytes == 3072);
  CHECK(planned.plan.workspaces[0].arena == Arena::activations);
  CHECK(planned.plan.workspaces[0].offset_bytes % 256 == 0);
  CHECK_NOTHROW(verify_plan(planned.input(), planned.plan));
}

TEST_CASE("parameters, gradients and moments lie where the layout says") {
  Graph graph = small_net(small_options());
  add_gradients(graph);
  const Case planned(std::move(graph));
  for (size_t v = 0; v < planned.graph.values.size(); ++v) {
    const Value& value = planned.graph.values[v];
    const Placement& at = planned.plan.values[v];
    auto offset = [&](ParameterId id) { return 8 * planned.layout.offset[static_cast<size_t>(id)]; };
    INFO(value.name);
    if (value.role == ValueRole::parameter) {
      CHECK(at.arena == Arena::parameters);
      CHECK(at.offset_bytes == offset(value.parameter));
    } else if (value.role == ValueRole::statistic) {
      CHECK(at.arena == Arena::statistics);
      CHECK(at.offset_bytes == offset(value.parameter));
    } else if (value.gradient_of >= 0) {
      CHECK(at.arena == Arena::gradients);
      CHECK(at.offset_bytes == offset(value.gradient_of));
    } else if (value.moment_of >= 0) {
      CHECK(at.arena == Arena::gradients);
      CHECK(at.offset_bytes == 8 * planned.layout.trained_elements + offset(value.moment_of));
    }
  }
}

TEST_CASE("verify_plan finds a planted overlap and names both values") {
  Chain c;
  const ValueId a = c.pool("first", c.x), b = c.pool("second", a);
  Case planned = c.keep(c.add("sum", Add{}, {a, b}));
  MemoryPlan wrong = planned.plan;
  wrong.values[static_cast<size_t>(b)] = wrong.values[static_cast<size_t>(a)];
  try {
    verify_plan(planned.input(), wrong);
    FAIL("the overlap went unnoticed");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::internal);
    CHECK_THAT(e.what(), ContainsSubstring("first") && ContainsSubstring("second") && ContainsSubstring("overlap"));
  }
}

TEST_CASE("verify_plan finds members of one class that lie apart") {
  Chain c;
  const ValueId a = c.pool("a", c.x), b = c.relu("b", a), d = c.pool("d", b);
  const Case planned = c.keep(d);
  REQUIRE(planned.same_class(a, b));
  MemoryPlan wrong = planned.plan;
  wrong.values[static_cast<size_t>(b)].offset_bytes += 2048;
  CHECK_THROWS_WITH(verify_plan(planned.input(), wrong), ContainsSubstring("b and a share memory but lie apart"));
}

TEST_CASE("verify_plan finds a value outside the arena") {
  Chain c;
  const ValueId a = c.pool("a", c.x), b = c.pool("b", a);
  Case planned = c.keep(b);
  MemoryPlan wrong = planned.plan;
  wrong.activation_bytes -= 64;
  CHECK_THROWS_WITH(verify_plan(planned.input(), wrong), ContainsSubstring("lies outside the arena"));
  wrong = planned.plan;
  wrong.values[static_cast<size_t>(a)].offset_bytes = -64;
  CHECK_THROWS_WITH(verify_plan(planned.input(), wrong), ContainsSubstring("a lies outside the arena"));
}

TEST_CASE("verify_plan finds a workspace on top of an operand") {
  Chain c;
  const ValueId a = c.pool("a", c.x);
  c.graph.value(c.pool("b", a)).kept = true;
  const Case planned(std::move(c.graph), 100);
  MemoryPlan wrong = planned.plan;
  wrong.workspaces[1] = planned.at(a);
  CHECK_THROWS_WITH(verify_plan(planned.input(), wrong),
                    ContainsSubstring("the workspace of step 1") && ContainsSubstring("overlap"));
}

TEST_CASE("verify_plan finds a value that was overwritten within its class") {
  Chain c;
  const ValueId a = c.pool("a", c.x), b = c.relu("b", a);
  Case planned = c.keep(c.add("sum", Add{}, {a, b}));
  MemoryPlan wrong = planned.plan;
  for (ValueId v : {a, b}) {
    wrong.alias_class[static_cast<size_t>(v)] = a;
    wrong.values[static_cast<size_t>(v)] = planned.at(a);
  }
  CHECK_THROWS_WITH(verify_plan(planned.input(), wrong), ContainsSubstring("sum reads a, whose memory holds b"));
}

TEST_CASE("plans of random nets prove right and never need more than all values together") {
  const FakeBackend backend;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Graph graph = random_net(seed, {.batch_size = 2, .image_size = 4, .classes = 3, .aux_weight = 0.3, .dropout = 0.5});
    if (seed % 4 != 0) add_gradients(graph);
    if (seed % 2 != 0) choose_formats(graph, backend);
    const Case planned(std::move(graph), seed % 3 * 100);
    INFO("seed " << seed);
    REQUIRE_NOTHROW(verify_plan(planned.input(), planned.plan));
    int64_t sum = 0;
    for (size_t v = 0; v < planned.graph.values.size(); ++v) {
      if (planned.plan.values[v].arena != Arena::activations) continue;
      REQUIRE(planned.plan.values[v].offset_bytes % (planned.storage[v] > 4096 ? 256 : 64) == 0);
      sum += static_cast<int64_t>(planned.storage[v] + 255) / 256 * 256;
    }
    for (size_t p = 0; p < planned.workspaces.size(); ++p) {
      REQUIRE(planned.plan.workspaces[p].offset_bytes % 256 == 0);
      sum += static_cast<int64_t>(planned.workspaces[p] + 255) / 256 * 256;
    }
    REQUIRE(planned.plan.activation_bytes <= sum);
  }
}

namespace {

// Two pools that write into a concatenation, which a third one reads.
struct ViewChain : Chain {
  ValueId a = pool("a", x), b = pool("b", x), cat = add("cat", Concat{}, {a, b});
  void make_view(ValueId part, ValueId whole, int64_t channel) {
    graph.value(part).view_of = whole;
    graph.value(part).view_channel = channel;
    graph.value(part).desc.parent_channels = graph.value(whole).desc.shape.c();
  }
};

}  // namespace

TEST_CASE("views lie inside the whole, which lives from the first part that is written") {
  ViewChain c;
  c.make_view(c.a, c.cat, 0);
  c.make_view(c.b, c.cat, 1);
  const ValueId last = c.pool("last", c.cat);
  const ValueId a = c.a, b = c.b, cat = c.cat;
  const Case planned = c.keep(last);
  CHECK(planned.same_memory(a, cat));
  CHECK(planned.same_class(b, cat));
  CHECK(planned.at(b).offset_bytes == planned.at(cat).offset_bytes + 1024);
  CHECK(planned.plan.activation_bytes == 2048 + 2048);
  CHECK_NOTHROW(verify_plan(planned.input(), planned.plan));
}

TEST_CASE("nothing is overwritten in place where a view has it") {
  ViewChain c;
  const ValueId part = c.add("part", Slice{1, 1}, {c.cat});
  c.make_view(part, c.cat, 1);
  const ValueId relu = c.relu("relu", part);
  const Case planned = c.keep(relu);
  CHECK_FALSE(planned.same_class(relu, part));
  CHECK_NOTHROW(verify_plan(planned.input(), planned.plan));
}

TEST_CASE("verify_plan notices a view that another part overwrites") {
  ViewChain c;
  c.make_view(c.a, c.cat, 0);
  c.make_view(c.b, c.cat, 1);
  const ValueId cat = c.cat, b = c.b;
  Case planned = c.keep(c.pool("last", cat));
  planned.graph.value(b).view_channel = 0;  // both parts in one place
  planned.plan.values[static_cast<size_t>(b)] = planned.at(cat);
  CHECK_THROWS_WITH(verify_plan(planned.input(), planned.plan), ContainsSubstring("cat reads a, whose memory holds b"));
}

TEST_CASE("the peak names the step and what lives then, largest first") {
  Chain c;
  const ValueId a = c.pool("a", c.x), cat = c.add("cat", Concat{}, {a, a}), b = c.pool("b", cat);
  const Case planned = c.keep(b);
  const MemoryPeak peak = find_peak(planned.input(), planned.plan);
  CHECK(planned.graph.node(planned.schedule.order[static_cast<size_t>(peak.position)]).name == "b");
  CHECK(peak.bytes == 4096);
  REQUIRE(peak.parts.size() == 2);
  CHECK((peak.parts[0].bytes == 2048 && peak.parts[1].bytes == 2048));
  CHECK((peak.parts[0].value == cat || peak.parts[1].value == cat));
}
