// Frozen layers and learning-rate factors: bits, gradients, memory and work.
#include <algorithm>
#include <array>
#include <set>

#include "lockstep/base/random.h"
#include "lockstep/train/initialize.h"
#include "lockstep/train/optimizer.h"
#include "test/catch.h"
#include "test/config/config_error.h"

using namespace lockstep;

namespace {

// Two branches that merge_siblings merges, on a stem, and a block on top of them.
constexpr const char* kNet = R"(
layer = [
  { op = "conv_norm_relu", name = "stem", channels = 16, kernel = 3, pad = 1 },
  { op = "conv_norm_relu", name = "left", channels = 16, input = "stem" },
  { op = "conv_norm_relu", name = "right", channels = 32, input = "stem" },
  { op = "concat", name = "cat", inputs = ["left", "right"] },
  { op = "conv_norm_relu", name = "top", channels = 16, kernel = 3, pad = 1 },
  { op = "global_avg_pool", name = "pool" },
  { op = "flatten", name = "flatten" },
  { op = "dropout", name = "dropout" },
  { op = "linear", name = "fc", outputs = "$classes" },
  { op = "loss", name = "loss" },
]
)";

Config tuning(const std::string& optimizer = "sgd") {
  Config config;
  config.model.name = "file";
  config.model.definition = kNet;
  config.model.classes = 3;
  config.model.image_size = 8;
  config.model.dropout = 0.3;
  config.data.format = "synthetic";
  config.train.batch_size = 4;
  config.optimizer = {.name = optimizer, .lr = 0.01, .epsilon = 1e-3, .weight_decay = 0.01};
  config.ema.decay = 0.9;
  return config;
}

// A compiled model that makes steps on random images.
struct Tuned {
  Tuned(const std::string& backend_name, Config c)
      : config(std::move(c)),
        backend(make_backend(backend_name, {.threads = 2, .winograd = false})),
        stream(backend->make_stream()),
        model(config, {4, 4}, Purpose::train, *backend, *stream),
        updater(*backend, model.training(), config) {
    initialize_parameters(config, model, HostState(model));
    for (ParameterId id = 0; id < model.parameters().size(); ++id) {
      std::ranges::copy(model.parameter(id), model.parameter(id, Weights::average).begin());
    }
  }

  void step(uint64_t number) {
    std::vector<float> images(4 * 3 * 8 * 8);
    RandomStream random(random_key(number));
    for (float& value : images) value = static_cast<float>(random.normal());
    const std::array<int32_t, 4> labels{0, 1, 2, 1}, at{static_cast<int32_t>(number), 0, 0, 0};
    const std::array<float, 4> weights{1, 1, 1, 1};
    Arenas arenas = model.training_arenas();
    arenas.external = {.images = images.data(), .labels = labels.data(), .weights = weights.data(), .step = at.data()};
    model.training().forward(*stream, arenas);
    model.training().backward(*stream, arenas, {});
    std::array<float, kUpdateScalars> scalars{};
    scalars[kLearningRate] = 0.01F;
    scalars[kGradientScale] = 0.25F;
    scalars[kBias1] = scalars[kBias2] = 0.5F;
    scalars[kAverageDecay] = 0.8F;
    scalars[kSampleCount] = 4;
    updater.apply(*stream, model.state(), scalars.data());
    stream->wait();
  }

  std::vector<float> values(const std::string& name, Weights weights = Weights::raw) const {
    const std::span<float> span = model.parameter(model.parameters().find(name), weights);
    return {span.begin(), span.end()};
  }

  Config config;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Stream> stream;
  CompiledModel model;
  Updater updater;
};

Tuned trained(const std::string& backend, const Config& config) {
  Tuned run(backend, config);
  for (uint64_t i = 0; i < 4; ++i) run.step(i);
  return run;
}

std::vector<std::string> with_factor(const std::vector<std::string>& patterns, const std::string& factor) {
  std::vector<std::string> items;
  for (const std::string& pattern : patterns) items.push_back(pattern + "=" + factor);
  return items;
}

int64_t backward_multiply_adds(const Executable& e) {
  int64_t sum = 0;
  for (size_t p = e.schedule().forward_end; p < e.schedule().order.size(); ++p) {
    const Node& node = e.graph().node(e.schedule().order[p]);
    sum += multiply_adds(node.op, e.graph().descs(node.inputs), e.graph().descs(node.outputs));
  }
  return sum;
}

}  // namespace

TEST_CASE("frozen layers give the bits of a learning rate of 0 and frozen statistics") {
  const std::string backend = GENERATE("reference", "cpu"), optimizer = GENERATE("sgd", "rmsprop_tf", "adamw", "lars");
  const auto frozen = GENERATE(std::vector<std::string>{"stem", "left", "right"},  // the bottom
                               std::vector<std::string>{"top"},                    // in the middle
                               std::vector<std::string>{"stem", "left"},           // one of two siblings
                               std::vector<std::string>{"left"});                  // on a stem that is trained
  INFO(backend << ", " << optimizer << ", " << frozen.back());
  Config config = tuning(optimizer);
  const Tuned start(backend, config), full = trained(backend, config);
  config.train.freeze = frozen;
  const Tuned pruned = trained(backend, config);
  config.train.freeze = {};
  config.train.freeze_batch_norm = frozen;
  config.optimizer.lr_factors = with_factor(frozen, "0");
  const Tuned halted = trained(backend, config);
  for (const Parameter& p : start.model.parameters().all()) {
    INFO(p.name);
    const std::vector<float> values = pruned.values(p.name);
    CHECK(values == halted.values(p.name));
    CHECK(pruned.values(p.name, Weights::average) == halted.values(p.name, Weights::average));
    CHECK((values == start.values(p.name)) == names_parameter(frozen, p.name));
    CHECK(full.values(p.name) != start.values(p.name));
  }
}

TEST_CASE("a factor multiplies the learning rate of the parameters that its pattern is the first to match") {
  const std::string backend = GENERATE("reference", "cpu");
  Config config = tuning();
  const Tuned start(backend, config);
  Tuned plain(backend, config);
  config.optimizer.lr_factors = {"fc.bias=1", "fc=10", "top=0.5", "fc.weight=7"};
  Tuned scaled(backend, config);
  plain.step(0);
  scaled.step(0);
  for (const Parameter& p : start.model.parameters().all()) {
    if (!p.trained()) continue;
    const double factor = p.name == "fc.weight" ? 10 : p.name.starts_with("top.") ? 0.5 : 1;
    const auto before = start.values(p.name), expected = plain.values(p.name), values = scaled.values(p.name);
    INFO(p.name);
    for (size_t i = 0; i < values.size(); ++i) {
      const double change = factor * (double{expected[i]} - double{before[i]});
      CHECK(double{values[i]} - double{before[i]} == Approx(change).epsilon(1e-4).margin(2e-7 * factor));
    }
  }
}

TEST_CASE("a factor whose pattern matches no trained parameter is an error") {
  Config config = tuning();
  const auto error = [&] { return config_error([&] { Tuned("cpu", config); }); };
  config.optimizer.lr_factors = {"f=2"};
  CHECK_THAT(error(), ContainsSubstring(
                          "optimizer.lr_factors: \"f\" matches no trained parameter of the model; did you mean fc?"));
  config.optimizer.lr_factors = {"fc=2"};
  config.train.freeze = {"fc"};
  CHECK_THAT(error(), ContainsSubstring("optimizer.lr_factors: \"fc\" matches no trained parameter of the model"));
}

TEST_CASE("frozen layers need no gradients, slots, activations or backward work") {
  const std::string backend = GENERATE("reference", "cpu");
  Config config = tuning();
  const Tuned full(backend, config);
  config.train.freeze = {"stem", "left", "right"};
  const Tuned head(backend, config);
  const Executable &all = full.model.training(), &top = head.model.training();
  CHECK(10 * top.plan().activation_bytes < 9 * all.plan().activation_bytes);
  CHECK(backward_multiply_adds(top) == 4 * (8 * 8 * 16 * 48 * 9 + 2 * 16 * 3));  // top by weights, fc by both
  CHECK(backward_multiply_adds(all) > 2 * backward_multiply_adds(top));
  std::set<std::string> reduced;
  for (const ParameterId id : top.schedule().gradient_order) reduced.insert(top.graph().parameters[id].name);
  CHECK(reduced == std::set<std::string>{"top.conv.weight", "top.bn.weight", "top.bn.bias", "fc.weight", "fc.bias"});
  const ModelState &whole = full.model.state(), &small = head.model.state();
  CHECK(small.trained_elements == 16 * 48 * 9 + 16 + 16 + 48 + 16);  // the smallest are padded
  CHECK(small.moment_elements == 32);
  CHECK(small.slots[0].bytes() == small.parameters.bytes());
  CHECK(small.parameters.bytes() < whole.parameters.bytes());
  CHECK(small.parameters.bytes() + small.statistics.bytes() == whole.parameters.bytes() + whole.statistics.bytes());
  for (size_t p = top.schedule().forward_end; p < top.schedule().order.size(); ++p) {
    INFO(top.graph().node(top.schedule().order[p]).name);
    for (const char* below : {"stem", "left", "right"}) {
      CHECK_FALSE(top.graph().node(top.schedule().order[p]).name.starts_with(below));
    }
  }
}
