#include "lockstep/train/optimizer.h"

#include <array>
#include <cmath>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/graph/model_builder.h"
#include "test/catch.h"
#include "test/config/config_error.h"

using namespace lockstep;

namespace {

constexpr int64_t kSpatial = 6 * 6;  // of the batch norm's input

Graph tiny_graph() {
  ModelBuilder b({.batch_size = 2, .image_size = 6, .classes = 3});
  ValueId x = b.conv_norm_relu(b.images(), "stem", {.channels = 5, .window = {3, 3, 1, 1, 1, 1}});
  x = b.flatten(b.global_avg_pool(x, "pool"), "flatten");
  b.loss(b.linear(x, "fc", {.outputs = 3}), "loss", 1);
  return std::move(b).finish();
}

using Values = std::map<std::string, std::vector<double>>;  // by parameter

// The update by its formulas, in double, one parameter at a time.
struct Formulas {
  Config config;
  Values weights, slot0, slot1, averages;

  void update(const Parameter& p, const std::vector<double>& gradient, double rate, double scale, int64_t t) {
    const Config::Optimizer& o = config.optimizer;
    const double decay = o.decay_norm_and_bias || p.kind == ParameterKind::weight ? o.weight_decay : 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      double &w = weights[p.name][i], &a = slot0[p.name][i], &b = slot1[p.name][i];
      const double before = w, g = gradient[i] * scale + (o.name == "adam" ? decay * w : 0);
      if (o.name == "sgd") {
        a = o.momentum * a + g + decay * w;
        w -= rate * (o.nesterov ? g + decay * before + o.momentum * a : a);
      } else if (o.name == "rmsprop_tf") {
        const double d = g + decay * w;
        a = o.decay * a + (1 - o.decay) * d * d;
        b = o.momentum * b + rate * d / std::sqrt(a + o.epsilon);
        w -= b;
      } else {
        a = 0.9 * a + 0.1 * g;
        b = 0.999 * b + 0.001 * g * g;
        const double first = a / (1 - std::pow(0.9, t)), second = b / (1 - std::pow(0.999, t));
        if (o.name == "adamw") w -= rate * decay * w;
        w -= rate * first / (std::sqrt(second) + o.epsilon);
      }
    }
  }
  void update_mean(std::vector<double>& mean, const std::vector<double>& sums, double samples) const {
    for (size_t c = 0; c < mean.size(); ++c) mean[c] += config.model.bn_momentum * sums[c] / samples;
  }
  // `sums` are of squares, `shifts` of distances, both from the running mean as it was.
  void update_var(std::vector<double>& var, const std::vector<double>& sums, const std::vector<double>& shifts,
                  double samples) const {
    const double count = samples * kSpatial;
    for (size_t c = 0; c < var.size(); ++c) {
      const double shift = shifts[c] / samples;
      const double unbiased = (sums[c] / samples - shift * shift) * count / (count - 1);
      var[c] = (1 - config.model.bn_momentum) * var[c] + config.model.bn_momentum * unbiased;
    }
  }
  void average(int64_t t) {
    const double n = static_cast<double>(t), decay = std::min(config.ema.decay, (1 + n) / (10 + n));
    for (auto& [name, values] : averages) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = decay * values[i] + (1 - decay) * weights[name][i];
    }
  }
};

// Updater and formulas side by side on the same random gradients.
class Race {
 public:
  Race(const std::string& backend, const Config& config)
      : backend_(make_backend(backend, {.threads = 2})),
        stream_(backend_->make_stream()),
        executable_(Executable::compile(tiny_graph(), *backend_, {})),
        updater_(*backend_, executable_, config),
        formulas_{.config = config} {
    state_ = make_model_state(*backend_, *stream_, executable_.layout(),
                              {.optimizer = parse_optimizer(config.optimizer.name), .average = config.ema.decay > 0});
    const auto& initial = optimizer_slots(parse_optimizer(config.optimizer.name)).initial;
    for (const Parameter& p : table().all()) {
      float* values = weights(p);
      std::vector<double>& expected = formulas_.weights[p.name];
      for (int64_t i = 0; i < p.shape.elements(); ++i) {
        values[i] = static_cast<float>(random(p, 0, i) + (p.kind == ParameterKind::running_var ? 1 : 0));
        expected.push_back(values[i]);
        if (config.ema.decay > 0) average(p)[i] = values[i];
      }
      if (config.ema.decay > 0) formulas_.averages[p.name] = expected;
      formulas_.slot0[p.name].assign(expected.size(), initial[0]);
      formulas_.slot1[p.name].assign(expected.size(), initial.size() > 1 ? initial[1] : 0);
    }
  }

  void step(int64_t t) {
    const int64_t samples = 20 + t % 7;
    const double rate = 0.002 * static_cast<double>(1 + t % 3),
                 scale = (t % 4 ? 1.0 : 0.25) / static_cast<double>(samples);
    Values sums;  // of gradients or moments, over the samples
    for (const Parameter& p : table().all()) sums[p.name] = put_sums(p, t, samples);
    const auto n = static_cast<double>(samples), update = static_cast<double>(t);
    std::array<float, kUpdateScalars> scalars{};
    scalars[kLearningRate] = static_cast<float>(rate);
    scalars[kGradientScale] = static_cast<float>(scale);
    scalars[kBias1] = static_cast<float>(1 - std::pow(0.9, update));
    scalars[kBias2] = static_cast<float>(1 - std::pow(0.999, update));
    scalars[kAverageDecay] = static_cast<float>(std::min(formulas_.config.ema.decay, (1 + update) / (10 + update)));
    scalars[kSampleCount] = static_cast<float>(samples);
    updater_.apply(*stream_, state_, scalars.data());
    for (const Parameter& p : table().all()) {
      if (p.trained()) formulas_.update(p, sums[p.name], rate, scale, t);
    }
    const std::string bn = "stem.bn.running_";
    formulas_.update_var(formulas_.weights[bn + "var"], sums[bn + "var"], sums[bn + "mean"], n);
    formulas_.update_mean(formulas_.weights[bn + "mean"], sums[bn + "mean"], n);
    formulas_.average(t);
  }

  void compare() {
    for (const Parameter& p : table().all()) {
      INFO(p.name);
      CHECK(worst(weights(p), formulas_.weights[p.name]) < 1e-6);
      if (average(p)) CHECK(worst(average(p), formulas_.averages[p.name]) < 1e-6);
      if (!p.trained()) continue;
      CHECK(worst(slot(0, p), formulas_.slot0[p.name]) < 1e-6);
      if (state_.slots.size() > 1) CHECK(worst(slot(1, p), formulas_.slot1[p.name]) < 1e-6);
    }
  }

  const ParameterTable& table() const { return executable_.graph().parameters; }
  float* gradient(const Parameter& p) { return state_.gradients.as<float>() + offset(p); }

 private:
  int64_t offset(const Parameter& p) const {
    return executable_.layout().offset[static_cast<size_t>(table().find(p.name))];
  }
  float* weights(const Parameter& p) const {
    return (p.trained() ? state_.parameters : state_.statistics).as<float>() + offset(p);
  }
  float* average(const Parameter& p) const {
    const Buffer& arena = p.trained() ? state_.average_parameters : state_.average_statistics;
    return arena.data() ? arena.as<float>() + offset(p) : nullptr;
  }
  float* slot(size_t i, const Parameter& p) const { return state_.slots[i].as<float>() + offset(p); }

  static double random(const Parameter& p, int64_t t, int64_t i) {
    return random_unit_double(random_key(fnv1a64(p.name), static_cast<uint64_t>(t)), static_cast<uint64_t>(i)) - 0.5;
  }

  // Fills the gradient arena as a reduction leaves it and returns the same in double.
  std::vector<double> put_sums(const Parameter& p, int64_t t, int64_t samples) {
    float* at = gradient(p) + (p.trained() ? 0 : state_.trained_elements);
    std::vector<double> sums;
    for (int64_t i = 0; i < p.shape.elements(); ++i) {
      double one = random(p, t, i);
      if (p.kind == ParameterKind::running_var) one += 1.5;  // a mean square is above the squared mean
      at[i] = static_cast<float>(one * static_cast<double>(samples));
      sums.push_back(at[i]);
    }
    return sums;
  }

  static double worst(const float* values, const std::vector<double>& expected) {
    double most = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      most = std::max(most, std::abs(values[i] - expected[i]) / std::max(1.0, std::abs(expected[i])));
    }
    return most;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  Executable executable_;
  Updater updater_;
  ModelState state_;
  Formulas formulas_;
};

Config config_of(const std::string& optimizer) {
  Config config;
  config.optimizer = {.name = optimizer, .momentum = 0.8, .decay = 0.9, .epsilon = 1.0, .weight_decay = 0.03};
  if (optimizer.starts_with("adam")) config.optimizer.epsilon = 1e-6;
  config.model.bn_momentum = 0.2;
  config.ema.decay = 0.6;  // reached at the 14th update
  return config;
}

}  // namespace

TEST_CASE("50 updates are those of the formulas in double precision") {
  const std::string backend = GENERATE("reference", "cpu");
  const std::string optimizer = GENERATE("sgd", "nesterov", "rmsprop_tf", "adam", "adamw");
  Config config = config_of(optimizer == "nesterov" ? "sgd" : optimizer);
  config.optimizer.nesterov = optimizer == "nesterov";
  config.optimizer.decay_norm_and_bias = GENERATE(false, true);
  config.ema.decay = GENERATE(0.6, 0.0);
  INFO(backend << ", " << optimizer << ", " << config.optimizer.decay_norm_and_bias << ", " << config.ema.decay);
  Race race(backend, config);
  for (int64_t t = 1; t <= 50; ++t) race.step(t);
  race.compare();
}

TEST_CASE("a young average follows at (1 + t) / (10 + t), whatever its decay") {
  Config config = config_of("sgd");
  config.ema.decay = 0.9999;
  Race race("cpu", config);
  for (int64_t t = 1; t <= 5; ++t) race.step(t);
  race.compare();
}

TEST_CASE("optimizers have the configuration's names") {
  for (const OptimizerSlots& row : optimizers()) CHECK(parse_optimizer(row.name) == row.kind);
  CHECK_THAT(config_error([] { parse_optimizer("adagrad"); }), ContainsSubstring("optimizer.name = \"adagrad\""));
}
