#include "graph/gradients.h"

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "test/catch.h"
#include "test/graph/net.h"
#include "test/graph/nets.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

ModelBuilder tiny() { return ModelBuilder({.batch_size = 2, .image_size = 4, .classes = 3}); }

Graph finish(ModelBuilder b, ValueId last) {
  b.loss(b.linear(b.flatten(last, "flatten"), "fc", {.outputs = 3}), "loss", 1.0);
  return std::move(b).finish();
}

// The derivative of the loss along `direction` in one parameter, by central difference.
double slope(Net& net, const std::string& name, const std::vector<double>& direction) {
  constexpr double kStep = 1e-6;
  const std::vector<double> start = net.parameter(name);
  auto loss_at = [&](double t) {
    std::vector<double> moved = start;
    for (size_t i = 0; i < moved.size(); ++i) moved[i] += t * direction[i];
    net.set_parameter(name, moved);
    net.forward();
    return net.loss();
  };
  const double difference = loss_at(kStep) - loss_at(-kStep);
  net.set_parameter(name, start);
  return difference / (2 * kStep);
}

void check_slopes(Net& net, uint64_t seed) {
  net.fill_at_random(seed);
  net.forward();
  net.backward();
  for (const Parameter& p : net.graph().parameters.all()) {
    if (!p.trained()) continue;
    const std::vector<double> gradient = net.gradient(p.name);
    std::vector<double> direction(gradient.size());
    RandomStream random(random_key(seed, fnv1a64(p.name)));
    double expected = 0;
    for (size_t i = 0; i < direction.size(); ++i) {
      direction[i] = random.uniform(-1, 1);
      expected += direction[i] * gradient[i];
    }
    INFO(p.name << ", seed " << seed);
    CHECK(slope(net, p.name, direction) == Approx(expected).epsilon(1e-5).margin(1e-7));
  }
}

}  // namespace

TEST_CASE("each trained parameter has one gradient of its own shape, nothing else has one") {
  Graph graph = small_net(small_options());
  const size_t forward = graph.nodes.size();
  add_gradients(graph);
  std::vector<int> gradients(static_cast<size_t>(graph.parameters.size()), 0);
  for (const Value& v : graph.values) {
    if (v.gradient_of < 0) continue;
    ++gradients[static_cast<size_t>(v.gradient_of)];
    CHECK(v.desc.shape == graph.parameters[v.gradient_of].shape);
    CHECK(graph.node(v.producer).phase == Phase::backward);
  }
  for (ParameterId id = 0; id < graph.parameters.size(); ++id) {
    INFO(graph.parameters[id].name);
    CHECK(gradients[static_cast<size_t>(id)] == (graph.parameters[id].trained() ? 1 : 0));
  }
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    CHECK((graph.nodes[n].phase == Phase::forward) == (n < forward));
  }
  CHECK(is_well_formed(graph));
}

TEST_CASE("the images get no gradient") {
  Graph graph = small_net(small_options());
  add_gradients(graph);
  CHECK(find_node(graph, "stem.conv.grad_weights") != nullptr);
  CHECK(find_node(graph, "stem.conv.grad_input") == nullptr);
  CHECK(find_node(graph, "left.conv.grad_input") != nullptr);
}

TEST_CASE("gradients of a value with several readers are added") {
  ModelBuilder b = tiny();
  const ValueId x = b.conv(b.images(), "conv", {.channels = 4});
  const ValueId cat = b.concat({b.relu(x, "relu"), b.avg_pool(x, "pool", kThree), x}, "cat");
  Graph graph = finish(std::move(b), cat);
  add_gradients(graph);
  const Node* sum = find_node(graph, "conv.grad_sum");
  REQUIRE(sum);
  CHECK(sum->inputs.size() == 3);
  CHECK(find_node(graph, "conv.grad_weights")->inputs[1] == sum->outputs[0]);
}

TEST_CASE("the gradient of a concatenation is a slice for each member") {
  ModelBuilder b = tiny();
  const ValueId first = b.conv(b.images(), "first", {.channels = 4});
  const ValueId second = b.conv(b.images(), "second", {.channels = 5});
  const ValueId cat = b.concat({first, b.images(), second}, "cat");
  Graph graph = finish(std::move(b), cat);
  add_gradients(graph);
  CHECK(find_node(graph, "cat.grad1") == nullptr);  // the images want none
  const auto& slice = std::get<Slice>(find_node(graph, "cat.grad2")->op);
  CHECK(slice.begin == 7);
  CHECK(slice.count == 5);
}

TEST_CASE("a head's weight scales its gradient") {
  Graph graph = small_net(small_options());
  add_gradients(graph);
  const auto& main = std::get<SoftmaxCrossEntropyGrad>(find_node(graph, "loss.grad")->op);
  const auto& aux = std::get<SoftmaxCrossEntropyGrad>(find_node(graph, "aux_loss.grad")->op);
  CHECK(main.scale == 1);
  CHECK(aux.scale == 0.4);
  CHECK(aux.label_smoothing == 0.1);
}

TEST_CASE("a fixed scale gets no gradient, its shift does") {
  ModelOptions options = small_options();
  options.bn_scale = false;
  Graph graph = small_net(options);
  add_gradients(graph);
  const Node* grad = find_node(graph, "stem.bn.grad");
  REQUIRE(grad);
  CHECK(graph.value(grad->outputs[1]).gradient_of == -1);
  CHECK(graph.value(grad->outputs[2]).gradient_of == graph.parameters.find("stem.bn.bias"));
}

TEST_CASE("nothing below the lowest trained layer has a gradient, and frozen layers above it pass theirs on") {
  ModelOptions options = small_options();
  options.freeze = {"stem", "left", "right", "fc1"};
  Graph graph = small_net(options);
  add_gradients(graph);
  for (const Node& node : graph.nodes) {
    INFO(node.name);
    for (const char* below : {"stem.", "left.", "right.", "avg.", "max."}) {
      CHECK_FALSE((node.phase == Phase::backward && node.name.starts_with(below)));
    }
  }
  CHECK(find_node(graph, "pooled.conv.grad_weights") != nullptr);
  CHECK(find_node(graph, "pooled.conv.grad_input") == nullptr);
  CHECK(find_node(graph, "fc1.grad_weights") == nullptr);
  CHECK(find_node(graph, "fc1.grad_input") != nullptr);
  CHECK(is_well_formed(graph));
}

TEST_CASE("a parameter that influences no loss is an error that names it") {
  ModelBuilder b = tiny();
  const ValueId x = b.conv(b.images(), "conv", {.channels = 4});
  b.relu(b.batch_norm(b.conv(x, "lost", {.channels = 2, .bias = true}), "lost.bn"), "lost.relu");
  Graph graph = finish(std::move(b), x);
  try {
    add_gradients(graph);
    FAIL("the lost parameters went unnoticed");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::internal);
    CHECK_THAT(e.what(), ContainsSubstring("\"lost.weight\" does not influence any loss"));
  }
}

TEST_CASE("a branch without parameters that nobody reads does no harm") {
  ModelBuilder b = tiny();
  const ValueId x = b.conv(b.images(), "conv", {.channels = 4});
  b.relu(x, "unread");
  Graph graph = finish(std::move(b), x);
  CHECK_NOTHROW(add_gradients(graph));
  CHECK(find_node(graph, "unread.grad") == nullptr);
  CHECK(is_well_formed(graph));
}

TEST_CASE("a parameter that two nodes read is refused") {
  ModelBuilder b = tiny();
  const ValueId x = b.conv(b.images(), "conv", {.channels = 3});
  Graph graph = finish(std::move(b), x);
  const ValueId weight = find_value(graph, "conv.weight");
  const ValueId again = graph.add_node("again", Conv2d{}, {x, weight}).front();
  const ValueId flat = graph.add_node("again.flatten", Reshape{{2, 48}}, {again}).front();
  const auto out = graph.add_node("again.loss", SoftmaxCrossEntropy{},
                                  {flat, find_value(graph, "labels"), find_value(graph, "weights")});
  graph.losses.push_back({.name = "again", .logits = flat, .loss = out[1], .correct = out[2], .probabilities = out[0]});
  CHECK_THROWS_WITH(add_gradients(graph), ContainsSubstring("\"conv.weight\" is used by 2 nodes"));
}

TEST_CASE("gradients are the slopes of the loss") {
  const auto backend = make_backend("reference", {.threads = 1});
  for (const bool rewrites : {false, true}) {
    for (const bool scale : {false, true}) {
      ModelOptions options = small_options();
      options.bn_scale = scale;
      Net net(*backend, small_net(options), {.rewrites = rewrites});
      check_slopes(net, 3);
    }
  }
}

TEST_CASE("with frozen layers and frozen statistics gradients are the slopes of the loss") {
  const auto backend = make_backend("reference", {.threads = 1});
  for (const bool rewrites : {false, true}) {
    ModelOptions options = small_options();
    options.freeze_batch_norm = {"*"};
    Net norms(*backend, small_net(options), {.rewrites = rewrites});
    check_slopes(norms, 3);
    options.freeze = {"left", "tail", "fc1.weight"};
    options.freeze_batch_norm = {"pooled"};
    Net layers(*backend, small_net(options), {.rewrites = rewrites});
    check_slopes(layers, 4);
  }
}

TEST_CASE("gradients of random nets are the slopes of the loss") {
  const auto backend = make_backend("reference", {.threads = 1});
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Net net(
        *backend,
        random_net(
            seed,
            {.batch_size = 2, .image_size = 4, .classes = 3, .aux_weight = 0.3, .dropout = 0.3, .dtype = DType::f64}),
        {});
    check_slopes(net, seed);
  }
}

TEST_CASE("gradients of embedding sums are the slopes of the loss") {
  const auto backend = make_backend("reference", {.threads = 1});
  ModelBuilder b({.batch_size = 4, .classes = 3, .max_ids = 5, .dtype = DType::f64});
  const ValueId x = b.embedding_sum("embedding", {.vocabulary = 7, .width = 4});
  b.loss(b.linear(b.relu(x, "relu"), "fc", {.outputs = 3}), "loss", 1.0);
  Net net(*backend, std::move(b).finish(), {});
  check_slopes(net, 5);
}
