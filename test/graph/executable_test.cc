#include "lockstep/graph/executable.h"

#include <map>

#include "lockstep/base/error.h"
#include "test/catch.h"
#include "test/graph/fake_backend.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// What outlives a step, byte for byte: the fake backend's bytes are no numbers.
std::vector<std::string> results_of(const Net& net, const FakeBackend& backend) {
  std::vector<std::string> results;
  for (ValueId v = 0; v < static_cast<ValueId>(net.graph().values.size()); ++v) {
    const Value& value = net.graph().value(v);
    if (!value.kept && value.gradient_of < 0) continue;
    const void* at = net.executable().address(v, net.arenas());
    results.emplace_back(static_cast<const char*>(at), backend.storage_bytes(value.desc));
  }
  return results;
}

// Runs the same kernels with every value in memory of its own, then puts what outlives the step where results_of()
// looks for it.
std::vector<std::string> run_without_sharing(const FakeBackend& backend, Net& net) {
  const Graph& graph = net.graph();
  const Executable& e = net.executable();
  const auto stream = backend.make_stream();
  std::map<ValueId, Buffer> own;
  auto memory = [&](ValueId v) -> void* {
    if (graph.value(v).role != ValueRole::computed) return e.address(v, net.arenas());
    Buffer& buffer = own[v];
    if (!buffer.data()) buffer = backend.allocate(backend.storage_bytes(graph.value(v).desc));
    return buffer.data();
  };
  for (size_t p = 0; p < e.schedule().order.size(); ++p) {
    const Node& node = graph.node(e.schedule().order[p]);
    std::vector<void*> in, out;
    for (ValueId v : node.inputs) in.push_back(memory(v));
    for (ValueId v : node.outputs) out.push_back(memory(v));
    const Buffer workspace = backend.allocate(e.kernel(p).workspace_bytes());
    e.kernel(p).run({*stream, in, out, workspace.data()});
  }
  for (const auto& [v, buffer] : own) {
    const Value& value = graph.value(v);
    if (!value.kept && value.gradient_of < 0) continue;
    std::memcpy(e.address(v, net.arenas()), buffer.data(), buffer.bytes());
  }
  return results_of(net, backend);
}

}  // namespace

TEST_CASE("sharing memory changes nothing") {
  const FakeBackend backend({.workspace = 96});
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Net net(backend,
            random_net(seed, {.batch_size = 2, .image_size = 4, .classes = 3, .aux_weight = 0.3, .dropout = 0.5}), {});
    net.fill_at_random(seed);
    net.forward();
    net.backward();
    const auto shared = results_of(net, backend);
    INFO("seed " << seed);
    REQUIRE(shared == run_without_sharing(backend, net));
    net.forward();  // nothing of the step before is left over
    net.backward();
    REQUIRE(shared == results_of(net, backend));
  }
}

TEST_CASE("the backends agree on whole nets") {
  const auto cpu = make_backend("cpu", {.threads = 1});
  const auto reference = make_backend("reference", {.threads = 1});
  for (uint64_t seed = 0; seed < 12; ++seed) {
    ModelOptions options{
        .batch_size = 3, .image_size = 6, .classes = 4, .aux_weight = 0.3, .dropout = 0.3, .label_smoothing = 0.1};
    Net fast(*cpu, random_net(seed, options), {});
    options.dtype = DType::f64;
    Net exact(*reference, random_net(seed, options), {});
    for (Net* net : {&fast, &exact}) {
      net->fill_at_random(seed);
      net->forward();
      net->backward();
    }
    INFO("seed " << seed);
    CHECK(fast.loss() == Approx(exact.loss()).epsilon(1e-5));
    for (size_t h = 0; h < exact.graph().losses.size(); ++h) {
      const auto logits = exact.value(exact.graph().losses[h].logits);
      CHECK(relative_error(fast.value(fast.graph().losses[h].logits), logits) < 1e-5);
    }
    CHECK(worst_gradient_error(fast, exact) < 1e-3);
  }
}

TEST_CASE("many layers are concatenated, and each reads one that many read") {
  const auto dense_net = [](int layers, DType dtype) {
    ModelBuilder b({.batch_size = 2, .image_size = 4, .classes = 3, .dtype = dtype});
    const ValueId x = b.conv(b.images(), "x", {.channels = 2});
    std::vector<ValueId> members;
    for (int i = 0; i < layers; ++i) members.push_back(b.conv(x, fmt::format("c{}", i), {.channels = 2}));
    b.loss(b.linear(b.flatten(b.concat(members, "all"), "f"), "fc", {.outputs = 3}), "loss", 1);
    return std::move(b).finish();
  };
  const auto cpu = make_backend("cpu", {.threads = 1});
  const auto reference = make_backend("reference", {.threads = 1});
  Net fast(*cpu, dense_net(50, DType::f32), {.rewrites = false}), exact(*reference, dense_net(50, DType::f64), {});
  CHECK(worst_error(fast, exact) < 1e-4);
  CHECK_THROWS_WITH(Executable::compile(dense_net(65, DType::f32), *cpu, {.rewrites = false}),
                    "all has 65 inputs; 64 are the most");
}

TEST_CASE("backward reports every position of its part once and in order") {
  const FakeBackend backend;
  Net net(backend, small_net(small_options()), {});
  net.forward();
  std::vector<int32_t> seen;
  const auto stream = backend.make_stream();
  net.executable().backward(*stream, net.arenas(), [&](int32_t position) { seen.push_back(position); });
  const Schedule& schedule = net.executable().schedule();
  REQUIRE(seen.size() == schedule.order.size() - static_cast<size_t>(schedule.forward_end));
  for (size_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == schedule.forward_end + static_cast<int32_t>(i));
}

TEST_CASE("gradient marks rise and cover every trained element") {
  const FakeBackend backend;
  const Executable e = Executable::compile(small_net(small_options()), backend, {});
  const auto marks = e.gradient_marks();
  REQUIRE(!marks.empty());
  for (size_t i = 1; i < marks.size(); ++i) {
    CHECK(marks[i - 1].position <= marks[i].position);
    CHECK(marks[i - 1].end < marks[i].end);
  }
  CHECK(marks.back().end == e.layout().trained_elements);
  CHECK(marks.back().position < static_cast<int32_t>(e.schedule().order.size()));
}

TEST_CASE("a mark never comes before the gradients that it covers, whatever the layout") {
  const FakeBackend backend;
  const Graph graph = small_net(small_options());
  std::vector<ParameterId> order;  // table order: the first layers' gradients finish last but lie first
  for (ParameterId id = 0; id < graph.parameters.size(); ++id) {
    if (graph.parameters[id].trained()) order.push_back(id);
  }
  const ParameterLayout layout = lay_out_parameters(graph.parameters, order);
  const Executable e = Executable::compile(graph, backend, {.layout = &layout});
  const Schedule& schedule = e.schedule();
  for (const GradientMark& mark : e.gradient_marks()) {
    for (size_t i = 0; i < schedule.gradient_order.size(); ++i) {
      const auto id = static_cast<size_t>(schedule.gradient_order[i]);
      if (layout.offset[id] < mark.end) CHECK(schedule.gradient_ready[i] <= mark.position);
    }
  }
}

TEST_CASE("an evaluation graph finds its parameters in the training graph's arenas") {
  const FakeBackend backend;
  ModelOptions options = small_options();
  const Executable train = Executable::compile(small_net(options), backend, {});
  options.training = false;
  const Graph eval = small_net(options);
  ParameterTable table;  // without the auxiliary head, as models leave it out
  for (const Parameter& p : eval.parameters.all()) {
    if (p.name.rfind("aux.", 0) != 0) table.add(p);
  }
  const ParameterLayout layout = adopt_layout(table, train.graph().parameters, train.layout());
  CHECK(layout.trained_elements == train.layout().trained_elements);
  CHECK(layout.statistic_elements == train.layout().statistic_elements);
  for (ParameterId id = 0; id < table.size(); ++id) {
    const ParameterId there = train.graph().parameters.find(table[id].name);
    CHECK(layout.offset[static_cast<size_t>(id)] == train.layout().offset[static_cast<size_t>(there)]);
  }
}

TEST_CASE("a layout is not adopted from a graph of other shapes") {
  const FakeBackend backend;
  const Executable train = Executable::compile(small_net(small_options()), backend, {});
  ParameterTable table;
  table.add({.name = "fc2.weight", .shape = {5, 7}});
  CHECK_THROWS_WITH(adopt_layout(table, train.graph().parameters, train.layout()), ContainsSubstring("\"fc2.weight\""));
}

TEST_CASE("what a backend refuses is reported with the node's name") {
  const FakeBackend backend({.refuses_op = static_cast<int>(Op(LocalResponseNorm{}).index())});
  try {
    Executable::compile(small_net(small_options()), backend, {});
    FAIL("the refusal got lost");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::config);
    CHECK(std::string(e.what()) == "lrn: refused");
  }
}

TEST_CASE("rewrites run unless they are turned off, and say what they did") {
  const FakeBackend backend;
  const Executable on = Executable::compile(small_net(small_options()), backend, {});
  CHECK(matches_of(on, "fuse_norm_relu") == 3);
  CHECK(matches_of(on, "hoist_pointwise") == 1);
  CHECK(matches_of(on, "merge_siblings") == -1);  // pays on backends that read slices only
  const Executable off = Executable::compile(small_net(small_options()), backend, {.rewrites = false});
  CHECK(off.applied_rewrites().empty());
  CHECK(count_nodes<Relu>(off.graph()) == 5);
}

TEST_CASE("each input of a graph is bound by its name, and one that is read must be") {
  ExternalInputs inputs;
  const int at[7] = {};
  const std::pair<ExternalInput, const void * ExternalInputs::*> names[] = {
      {ExternalInput::images, &ExternalInputs::images},   {ExternalInput::labels, &ExternalInputs::labels},
      {ExternalInput::weights, &ExternalInputs::weights}, {ExternalInput::step, &ExternalInputs::step},
      {ExternalInput::ids, &ExternalInputs::ids},         {ExternalInput::loss_scale, &ExternalInputs::loss_scale},
      {ExternalInput::values, &ExternalInputs::values}};
  for (size_t i = 0; i < std::size(names); ++i) inputs[names[i].first] = &at[i];
  for (size_t i = 0; i < std::size(names); ++i) CHECK(inputs.*names[i].second == &at[i]);

  const FakeBackend backend;
  const Net net(backend, small_net(small_options()), {});
  Arenas arenas = net.arenas();
  arenas.external.images = nullptr;
  const auto stream = backend.make_stream();
  CHECK_THROWS_WITH(net.executable().forward(*stream, arenas), ContainsSubstring("is not bound"));
}
