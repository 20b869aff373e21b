// Results worked out by hand, on every backend in float32 and on the reference backend in float64 too.
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "test/backend/op_runner.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct Target {
  std::string backend;
  DType dtype;
};

std::vector<Target> targets() {
  std::vector<Target> result{{"reference", DType::f64}};
  for (std::string_view name : backend_names()) result.push_back({std::string(name), DType::f32});
  return result;
}

// Runs one operation and returns all its outputs.
class Runner {
 public:
  explicit Runner(const Target& target)
      : backend_(make_backend(target.backend, {.threads = 1})), dtype_(target.dtype) {}

  HostTensor real(const Shape& shape, std::vector<double> values) const { return {shape, dtype_, std::move(values)}; }
  static HostTensor whole(std::vector<double> values) {
    return {{static_cast<int64_t>(values.size())}, DType::i32, std::move(values)};
  }

  std::vector<HostTensor> run(const Op& op, const std::vector<HostTensor>& inputs) const {
    Step step{op, {}};
    for (size_t i = 0; i < inputs.size(); ++i) step.inputs.push_back(static_cast<int>(i));
    std::vector<HostTensor> values = run_program(*backend_, inputs, {&step, 1}).values;
    values.erase(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(inputs.size()));
    return values;
  }

  bool on_device() const { return !backend_->host_addressable(); }

  // A program of several operations; returns its last value.
  HostTensor last(const std::vector<HostTensor>& inputs, const std::vector<Step>& steps) const {
    return run_program(*backend_, inputs, steps).values.back();
  }

 private:
  std::unique_ptr<Backend> backend_;
  DType dtype_;
};

void check_near(const std::vector<double>& values, const std::vector<double>& expected) {
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    INFO("element " << i);
    CHECK(values[i] == Approx(expected[i]).epsilon(1e-5).margin(1e-6));
  }
}

// Calls body(runner) for every target.
template <class Body>
void on_every_backend(Body&& body) {
  for (const Target& target : targets()) {
    INFO(target.backend << " in " << dtype_name(target.dtype));
    body(Runner(target));
  }
}

}  // namespace

TEST_CASE("a convolution is a cross-correlation with zero padding") {
  on_every_backend([](const Runner& r) {
    const HostTensor x = r.real({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
    const HostTensor weights = r.real({1, 1, 2, 2}, {1, 2, 3, 4});
    const Window dense{2, 2, 1, 1, 0, 0}, sparse{2, 2, 2, 2, 1, 1};
    check_near(r.run(Conv2d{dense, true}, {x, weights, r.real({1}, {0.5})})[0].values, {37.5, 47.5, 67.5, 77.5});
    check_near(r.run(Conv2d{sparse, false}, {x, weights})[0].values, {4, 18, 36, 77});
    const HostTensor dy = r.real({1, 1, 2, 2}, {1, 0, 0, 2});
    check_near(r.run(Conv2dGradInput{dense, {1, 1, 3, 3}}, {dy, weights})[0].values, {1, 2, 0, 3, 6, 4, 0, 6, 8});
    const auto gradients = r.run(Conv2dGradWeights{dense, true}, {x, dy});
    check_near(gradients[0].values, {11, 14, 20, 23});
    check_near(gradients[1].values, {3});
  });
}

TEST_CASE("a convolution in groups is a convolution of each group of channels") {
  on_every_backend([](const Runner& r) {
    const HostTensor x = r.real({1, 2, 1, 2}, {1, 2, 3, 4}), dy = r.real({1, 4, 1, 2}, {1, 0, 0, 1, 1, 1, 2, 0});
    const HostTensor weights = r.real({4, 1, 1, 1}, {1, 10, 100, 1000});
    check_near(r.run(Conv2d{Window{}, false, 2}, {x, weights})[0].values, {1, 2, 10, 20, 300, 400, 3000, 4000});
    check_near(r.run(Conv2dGradInput{Window{}, {1, 2, 1, 2}, 2}, {dy, weights})[0].values, {1, 10, 2100, 100});
    check_near(r.run(Conv2dGradWeights{Window{}, false, 2}, {x, dy})[0].values, {1, 2, 7, 6});
  });
}

TEST_CASE("ReLU6 and its gradient are cut off at 0 and 6") {
  on_every_backend([](const Runner& r) {
    const HostTensor y = r.run(Relu{true}, {r.real({6}, {-1, 0, 2, 5.5, 6, 7})})[0];
    check_near(y.values, {0, 0, 2, 5.5, 6, 6});
    check_near(r.run(ReluGrad{true}, {y, r.real({6}, {1, 2, 3, 4, 5, 6})})[0].values, {0, 0, 3, 4, 0, 0});
  });
}

TEST_CASE("a linear layer multiplies by the transposed weights") {
  on_every_backend([](const Runner& r) {
    const HostTensor x = r.real({1, 2}, {3, 5}), weights = r.real({3, 2}, {1, 0, 0, 1, 2, -1});
    check_near(r.run(Linear{}, {x, weights, r.real({3}, {0, 10, 20})})[0].values, {3, 15, 21});
    const HostTensor dy = r.real({1, 3}, {1, 2, 3});
    check_near(r.run(LinearGradInput{}, {dy, weights})[0].values, {7, -1});
    const auto gradients = r.run(LinearGradWeights{}, {x, dy});
    check_near(gradients[0].values, {3, 5, 6, 10, 9, 15});
    check_near(gradients[1].values, {1, 2, 3});
    check_near(r.run(Linear{false}, {x, weights})[0].values, {3, 5, 1});
    CHECK(r.run(LinearGradWeights{false}, {x, dy}).size() == 1);
  });
}

TEST_CASE("batch norm normalizes with the biased variance") {
  on_every_backend([](const Runner& r) {
    const HostTensor x = r.real({2, 1, 1, 2}, {1, 2, 3, 6}), scale = r.real({1}, {4}), shift = r.real({1}, {1});
    for (bool relu : {false, true}) {
      const auto out = r.run(BatchNorm{0.5, relu}, {x, scale, shift});
      check_near(out[0].values, relu ? std::vector<double>{0, 0, 1, 7} : std::vector<double>{-3, -1, 1, 7});
      check_near(out[1].values, {3});
      check_near(out[2].values, {3.5});
      const auto inference =
          r.run(BatchNormInference{0.5, relu}, {x, scale, shift, r.real({1}, {2}), r.real({1}, {3.5})});
      check_near(inference[0].values, relu ? std::vector<double>{0, 1, 3, 9} : std::vector<double>{-1, 1, 3, 9});
    }
    const auto moments = r.run(BatchMoments{10}, {r.real({2}, {1, 3}), r.real({2}, {4, 0}), r.real({2}, {0.5, 3})});
    check_near(moments[0].values, {5, 0});
    check_near(moments[1].values, {42.5, 0});
  });
}

TEST_CASE("batch norm of equal values stays finite, forward and backward") {
  on_every_backend([](const Runner& r) {
    const HostTensor x = r.real({2, 1, 1, 2}, {7, 7, 7, 7}), scale = r.real({1}, {2}), shift = r.real({1}, {-1});
    const HostTensor dy = r.real({2, 1, 1, 2}, {1, 2, 3, 6});
    const std::vector<Step> steps{{BatchNorm{}, {0, 1, 2}}, {BatchNormGrad{}, {0, 3, 1, 5, 6, 7}}};
    check_near(r.run(BatchNorm{}, {x, scale, shift})[0].values, {-1, -1, -1, -1});
    CHECK(r.last({x, scale, shift, dy}, steps).values == std::vector<double>{12});  // dshift
  });
}

TEST_CASE("max pooling sees padding as minus infinity") {
  on_every_backend([](const Runner& r) {
    const HostTensor x = r.real({1, 1, 2, 3}, {-1, -2, -3, -4, -5, -6});
    const Window window{3, 3, 2, 2, 1, 1};
    check_near(r.run(MaxPool{window}, {x})[0].values, {-1, -2});
    const HostTensor dy = r.real({1, 1, 1, 2}, {10, 20});
    check_near(r.last({x, dy}, {{MaxPool{window}, {0}}, {MaxPoolGrad{window, x.shape}, {1, 3}}}).values,
               {10, 20, 0, 0, 0, 0});
  });
}

TEST_CASE("a NaN passes through every activation, so that a diverged run is noticed") {
  on_every_backend([](const Runner& r) {
    const HostTensor x = r.real({2, 1, 1, 2}, {1, kNaN, 3, -1}), one = r.real({1}, {1});
    CHECK(std::isnan(r.run(Relu{}, {x})[0].values[1]));
    const auto norm = r.run(BatchNorm{.relu = true}, {x, one, one});
    for (double value : norm[0].values) CHECK(std::isnan(value));
    CHECK(std::isnan(r.run(BatchNormInference{.relu = true}, {x, one, one, one, one})[0].values[1]));
    const auto maxima = r.run(MaxPool{Window{1, 2, 1, 2, 0, 0}}, {x})[0].values;
    CHECK(std::isnan(maxima[0]));
    CHECK(maxima[1] == 3);
  });
}

TEST_CASE("the reference backend gives equal maxima's gradient to the first and lets NaN win") {
  const Runner r({"reference", DType::f64});
  const Window window{2, 2, 2, 2, 0, 0};
  const HostTensor x = r.real({1, 1, 2, 4}, {0, 5, 1, 2, 5, 5, kNaN, 3});
  const auto y = r.run(MaxPool{window}, {x})[0].values;
  CHECK(y[0] == 5);
  CHECK(std::isnan(y[1]));
  const HostTensor dy = r.real({1, 1, 1, 2}, {1, 2});
  CHECK(r.last({x, dy}, {{MaxPool{window}, {0}}, {MaxPoolGrad{window, x.shape}, {1, 3}}}).values ==
        std::vector<double>{0, 1, 0, 0, 0, 0, 2, 0});
}

TEST_CASE("average pooling divides by the window, or by what of it lies inside") {
  on_every_backend([](const Runner& r) {
    const HostTensor x = r.real({1, 1, 2, 2}, {2, 4, 6, 12});
    const Window window{3, 3, 1, 1, 1, 1};
    check_near(r.run(AvgPool{window, true}, {x})[0].values, {24.0 / 9, 24.0 / 9, 24.0 / 9, 24.0 / 9});
    check_near(r.run(AvgPool{window, false}, {x})[0].values, {6, 6, 6, 6});
    const HostTensor dy = r.real({1, 1, 2, 2}, {9, 0, 0, 0});
    check_near(r.run(AvgPoolGrad{window, true, {1, 1, 2, 2}}, {dy})[0].values, {1, 1, 1, 1});
    check_near(r.run(AvgPoolGrad{window, false, {1, 1, 2, 2}}, {dy})[0].values, {2.25, 2.25, 2.25, 2.25});
  });
}

TEST_CASE("local response normalization follows its formula") {
  on_every_backend([](const Runner& r) {
    const HostTensor x = r.real({1, 3, 1, 1}, {1, 2, 3});
    const LocalResponseNorm norm{.size = 3, .alpha = 3, .beta = 1, .k = 1};
    check_near(r.run(norm, {x})[0].values, {1.0 / 6, 2.0 / 15, 3.0 / 14});
    const LocalResponseNorm root{.size = 3, .alpha = 6, .beta = 0.5, .k = 5};
    check_near(r.run(root, {x})[0].values, {1 / std::sqrt(15), 2 / std::sqrt(33), 3 / std::sqrt(31)});
  });
}

TEST_CASE("concatenation joins channels and slices extract them") {
  on_every_backend([](const Runner& r) {
    const HostTensor a = r.real({2, 1, 1, 2}, {1, 2, 3, 4}), b = r.real({2, 2, 1, 2}, {5, 6, 7, 8, 9, 10, 11, 12});
    const HostTensor joined = r.run(Concat{}, {a, b})[0];
    CHECK(joined.shape == Shape{2, 3, 1, 2});
    CHECK(joined.values == std::vector<double>{1, 2, 5, 6, 7, 8, 3, 4, 9, 10, 11, 12});
    CHECK(r.run(Slice{1, 2}, {joined})[0].values == b.values);
  });
}

TEST_CASE("dropout keeps what its formula says, wherever the sample is computed") {
  on_every_backend([](const Runner& r) {
    constexpr int64_t kElements = 37;
    const uint64_t step_key = 0x123456789abcdef0, first = 0x1fffffffe;
    auto words = [](uint64_t key, uint64_t sample) {
      std::vector<double> result;
      for (uint64_t word : {key, key >> 32, sample, sample >> 32}) {
        result.push_back(static_cast<int32_t>(static_cast<uint32_t>(word)));
      }
      return Runner::whole(result);
    };
    const Dropout dropout{.rate = 0.3, .node_key = 99};
    const HostTensor x = r.real({3, kElements}, std::vector<double>(3 * kElements, 0.7));
    const auto y = r.run(dropout, {x, words(step_key, first)})[0].values;
    std::vector<double> expected;
    for (uint64_t i = 0; i < 3 * kElements; ++i) {
      const bool kept = random_unit_float(random_key(step_key, 99), first * kElements + i) >= 0.3F;
      expected.push_back(kept ? 1 : 0);
    }
    check_near(y, expected);
    const HostTensor one = r.real({1, kElements}, std::vector<double>(kElements, 0.7));
    CHECK(r.run(dropout, {one, words(step_key, first + 2)})[0].values ==
          std::vector<double>(y.end() - kElements, y.end()));
  });
}

TEST_CASE("cross-entropy and its gradient have their textbook values") {
  on_every_backend([](const Runner& r) {
    const HostTensor logits = r.real({2, 3}, {0, std::log(2), std::log(5), std::log(5), std::log(2), 0});
    const HostTensor labels = Runner::whole({2, 1}), weights = r.real({2}, {1, 0.5});
    const double sure = std::log(8 / 5.0), unsure = std::log(8 / 2.0), wrong = std::log(8.0);
    const auto plain = r.run(SoftmaxCrossEntropy{}, {logits, labels, weights});
    check_near(plain[0].values, {0.125, 0.25, 0.625, 0.625, 0.25, 0.125});
    check_near(plain[1].values, {sure + 0.5 * unsure});
    CHECK(plain[2].values == std::vector<double>{1, 2});
    const auto smooth = r.run(SoftmaxCrossEntropy{0.3}, {logits, labels, weights});
    check_near(smooth[1].values,
               {0.8 * sure + 0.1 * unsure + 0.1 * wrong + 0.5 * (0.8 * unsure + 0.1 * sure + 0.1 * wrong)});
    const auto gradient = r.run(SoftmaxCrossEntropyGrad{0.3, 4}, {plain[0], labels, weights})[0].values;
    check_near(gradient, {4 * (0.125 - 0.1), 4 * (0.25 - 0.1), 4 * (0.625 - 0.8),  //
                          2 * (0.625 - 0.1), 2 * (0.25 - 0.8), 2 * (0.125 - 0.1)});
  });
}

TEST_CASE("cross-entropy of huge logits is finite") {
  on_every_backend([](const Runner& r) {
    const HostTensor logits = r.real({2, 2}, {1e4, -1e4, -1e4, 1e4}), weights = r.real({2}, {1, 1});
    const auto out = r.run(SoftmaxCrossEntropy{}, {logits, Runner::whole({0, 0}), weights});
    check_near(out[0].values, {1, 0, 0, 1});
    check_near(out[1].values, {2e4});
    CHECK(out[2].values == std::vector<double>{1, 2});
  });
}

TEST_CASE("samples of weight zero count nowhere, whatever they hold") {
  on_every_backend([](const Runner& r) {
    const HostTensor logits = r.real({2, 2}, {0, 0, kNaN, kInfinity}), weights = r.real({2}, {1, 0});
    const HostTensor labels = Runner::whole({0, -1});
    const auto out = r.run(SoftmaxCrossEntropy{0.1}, {logits, labels, weights});
    check_near(out[1].values, {std::log(2)});
    CHECK(out[2].values == std::vector<double>{1, 1});
    const auto gradient = r.run(SoftmaxCrossEntropyGrad{0.1, 1}, {out[0], labels, weights})[0].values;
    check_near(gradient, {-0.45, 0.45, 0, 0});
  });
}

TEST_CASE("among equal logits the lower class comes first, and NaN is never right") {
  on_every_backend([](const Runner& r) {
    const HostTensor weights = r.real({3}, {1, 1, 1});
    const HostTensor equal = r.real({3, 7}, std::vector<double>(21, 1.5));
    CHECK(r.run(SoftmaxCrossEntropy{}, {equal, Runner::whole({0, 4, 5}), weights})[2].values ==
          std::vector<double>{1, 2});
    const HostTensor diverged = r.real({3, 7}, std::vector<double>(21, kNaN));
    CHECK(r.run(SoftmaxCrossEntropy{}, {diverged, Runner::whole({0, 4, 6}), weights})[2].values ==
          std::vector<double>{0, 0});
  });
}

TEST_CASE("a label outside the classes is refused, or makes the loss of a device NaN, which ends the run") {
  on_every_backend([](const Runner& r) {
    const std::vector<HostTensor> inputs{r.real({1, 3}, {0, 0, 0}), Runner::whole({3}), r.real({1}, {1})};
    if (r.on_device()) {
      CHECK(std::isnan(r.run(SoftmaxCrossEntropy{}, inputs)[1].values[0]));
    } else {
      CHECK_THROWS_WITH(r.run(SoftmaxCrossEntropy{}, inputs), ContainsSubstring("label 3 among 3 classes"));
    }
  });
}
