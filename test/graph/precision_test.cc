#include "graph/passes/rewrite.h"

#include <algorithm>

#include "graph/gradients.h"
#include "lockstep/backend/cpu_library.h"
#include "lockstep/base/error.h"
#include "test/catch.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

DType dtype_of(const Graph& graph, ValueId id) { return graph.value(id).desc.dtype; }

}  // namespace

TEST_CASE("float32 needs no casts") {
  Graph graph = small_net(float_options());
  const size_t nodes = graph.nodes.size();
  CHECK(lower_precision(graph, DType::f32) == 0);
  CHECK(graph.nodes.size() == nodes);
}

TEST_CASE("layers compute in the lower precision, everything that remembers or sums in float32") {
  Graph graph = small_net(float_options());
  CHECK(lower_precision(graph, DType::bf16) > 0);
  CHECK(is_well_formed(graph));
  for (const Node& node : graph.nodes) {
    INFO(node.name);
    const DType first = dtype_of(graph, node.inputs[0]);
    std::visit(Overload{[&](const Conv2d&) {
                          CHECK(first == DType::bf16);
                          CHECK(dtype_of(graph, node.inputs[1]) == DType::bf16);
                          CHECK(dtype_of(graph, node.outputs[0]) == DType::bf16);
                        },
                        [&](const BatchNorm&) {
                          CHECK(first == DType::bf16);
                          CHECK(dtype_of(graph, node.inputs[1]) == DType::f32);
                          CHECK(dtype_of(graph, node.outputs[0]) == DType::bf16);
                          CHECK(dtype_of(graph, node.outputs[1]) == DType::f32);
                        },
                        [&](const BatchMoments&) { CHECK(first == DType::f32); },
                        [&](const SoftmaxCrossEntropy&) {
                          CHECK(first == DType::f32);
                          CHECK(dtype_of(graph, node.outputs[1]) == DType::f32);
                        },
                        [](const auto&) {}},
               node.op);
  }
  for (const Value& value : graph.values) {
    if (value.role != ValueRole::computed && value.external != ExternalInput::labels) {
      INFO(value.name);
      CHECK(value.desc.dtype != DType::bf16);
    }
  }
}

TEST_CASE("the logits that the caller reads are the float32 ones") {
  Graph graph = small_net(float_options());
  lower_precision(graph, DType::bf16);
  for (const LossHead& head : graph.losses) {
    CHECK(dtype_of(graph, head.logits) == DType::f32);
    CHECK(graph.value(head.logits).kept);
  }
}

TEST_CASE("a value is cast once, however many layers read it") {
  ModelBuilder b({.batch_size = 2, .image_size = 4, .classes = 3});
  const ValueId left = b.conv(b.images(), "left", {.channels = 2}),
                right = b.conv(b.images(), "right", {.channels = 2});
  b.loss(b.linear(b.flatten(b.concat({left, right}, "cat"), "flatten"), "fc", {.outputs = 3}), "loss", 1.0);
  Graph graph = std::move(b).finish();
  lower_precision(graph, DType::bf16);
  const auto of_images = std::ranges::count_if(graph.nodes, [&](const Node& node) {
    return std::holds_alternative<Cast>(node.op) && graph.value(node.inputs[0]).external == ExternalInput::images &&
           graph.value(node.inputs[0]).role == ValueRole::external;
  });
  CHECK(of_images == 1);
}

TEST_CASE("gradients of parameters end in float32") {
  Graph graph = small_net(float_options());
  lower_precision(graph, DType::bf16);
  add_gradients(graph);
  int gradients = 0;
  for (const Value& value : graph.values) {
    if (value.gradient_of < 0) continue;
    INFO(value.name);
    CHECK(value.desc.dtype == DType::f32);
    ++gradients;
  }
  CHECK(gradients > 0);
}

TEST_CASE("half precision brings a loss scale, which multiplies every gradient") {
  Graph half = small_net(float_options());
  lower_precision(half, DType::f16);
  CHECK(std::ranges::count_if(half.values, [](const Value& v) { return v.external == ExternalInput::loss_scale; }) ==
        1);

  const auto backend = make_backend("reference", {.threads = 1});
  Graph scaled = small_net(float_options());
  add_loss_scale(scaled);
  Net plain(*backend, small_net(float_options()), {}), with_scale(*backend, std::move(scaled), {});
  for (Net* net : {&plain, &with_scale}) net->fill_at_random(1);
  const double scale = 1024;
  with_scale.set(ExternalInput::loss_scale, {&scale, 1});
  for (Net* net : {&plain, &with_scale}) {
    net->forward();
    net->backward();
  }
  CHECK(plain.loss() == with_scale.loss());
  for (const Parameter& p : plain.graph().parameters.all()) {
    if (!p.trained()) continue;
    INFO(p.name);
    auto gradient = with_scale.gradient(p.name);
    for (double& value : gradient) value /= scale;
    CHECK(relative_error(gradient, plain.gradient(p.name)) < 1e-5);
  }
}

TEST_CASE("the CPU refuses what it has no fast path for, and says so") {
  const auto compile = [](const char* name, DType compute) {
    const auto backend = make_backend(name, {.threads = 1});
    Executable::compile(small_net(float_options()), *backend, {.compute = compute});
  };
  CHECK_THROWS_WITH(compile("cpu", DType::f16), ContainsSubstring("not in f16"));
  CHECK_THROWS_WITH(compile("reference", DType::bf16), ContainsSubstring("not in bf16"));
  if (cpu_computes_bf16()) {
    CHECK_NOTHROW(compile("cpu", DType::bf16));
  } else {
    CHECK_THROWS_WITH(compile("cpu", DType::bf16), ContainsSubstring("not in bf16"));
  }
}
