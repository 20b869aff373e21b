#include "lockstep/train/initialize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

Parameter weight(std::string name, Shape shape, double deviation) {
  return {.name = std::move(name),
          .shape = shape,
          .init = {.kind = Initializer::Kind::truncated_normal, .deviation = deviation}};
}

std::vector<float> start_values(const Parameter& parameter, InitRule rule, uint64_t seed = 1) {
  std::vector<float> values(static_cast<size_t>(parameter.shape.elements()));
  initialize_parameter(parameter, rule, seed, values);
  return values;
}

double mean_of(const std::vector<float>& values) {
  double sum = 0;
  for (float v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double deviation_of(const std::vector<float>& values) {
  const double mean = mean_of(values);
  double sum = 0;
  for (float v : values) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// The deviation of a standard normal cut at 2: sqrt(1 - 2 * 2 phi(2) / (2 Phi(2) - 1)).
constexpr double kCut = 0.8796257;

}  // namespace

TEST_CASE("start values depend on the seed and the parameter's name alone") {
  const Parameter a = weight("a.weight", Shape{8, 4, 3, 3}, 0.1);
  Parameter longer = a;
  longer.shape = Shape{16, 4, 3, 3};
  const auto values = start_values(a, InitRule::truncated_normal, 7);
  CHECK(values == start_values(a, InitRule::truncated_normal, 7));
  CHECK(values != start_values(a, InitRule::truncated_normal, 8));
  CHECK(values != start_values(weight("b.weight", a.shape, 0.1), InitRule::truncated_normal, 7));
  const auto more = start_values(longer, InitRule::truncated_normal, 7);
  CHECK(std::equal(values.begin(), values.end(), more.begin()));
}

TEST_CASE("no value lies beyond two deviations, and the model's deviation is kept inside") {
  const auto values = start_values(weight("conv.weight", Shape{64, 32, 5, 5}, 0.05), InitRule::truncated_normal);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  CHECK(*low >= -0.1F);
  CHECK(*high <= 0.1F);
  CHECK(*low < -0.099F);
  CHECK(*high > 0.099F);
  CHECK(mean_of(values) == Approx(0).margin(0.0008));  // four deviations of the mean
  CHECK(deviation_of(values) == Approx(0.05 * kCut).epsilon(0.02));
}

TEST_CASE("fan_in draws from the deviation that a layer's number of inputs asks for") {
  const auto conv = start_values(weight("conv.weight", Shape{64, 32, 5, 5}, 9), InitRule::fan_in);
  CHECK(deviation_of(conv) == Approx(std::sqrt(2.0 / (32 * 5 * 5)) * kCut).epsilon(0.02));
  const auto linear = start_values(weight("fc.weight", Shape{100, 400}, 9), InitRule::fan_in);
  CHECK(deviation_of(linear) == Approx(std::sqrt(1.0 / 400) * kCut).epsilon(0.02));
}

TEST_CASE("constants are the same under both rules and every seed") {
  const Parameter scale{.name = "bn.weight",
                        .shape = Shape{5},
                        .kind = ParameterKind::norm_scale,
                        .init = {.kind = Initializer::Kind::constant, .value = 1}};
  CHECK(start_values(scale, InitRule::truncated_normal, 1) == std::vector<float>(5, 1.0F));
  CHECK(start_values(scale, InitRule::fan_in, 2) == std::vector<float>(5, 1.0F));
}
