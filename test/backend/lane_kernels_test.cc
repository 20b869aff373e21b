// The vector loops of every instruction set that this processor has, against plain sums in double.
#include "backend/cpu/lanes/lane_kernels.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/tensor/half.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::cpu;

namespace {

std::vector<const LaneKernels*> instruction_sets(DType stored) {
  std::vector<const LaneKernels*> sets{&baseline_lane_kernels(stored)};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets.push_back(&avx2_lane_kernels(stored));
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512) sets.push_back(&avx512_lane_kernels(stored));
#endif
  return sets;
}

std::vector<float> random_values(int64_t count, uint64_t key, double mean) {
  RandomStream random{random_key(key)};
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(mean + random.normal()));
  return values;
}

NormChannels channels_of(int block) {
  NormChannels channels{};
  for (int c = 0; c < block; ++c) {
    const auto value = static_cast<float>(c);
    channels.mean.at[c] = 0.1F * value - 0.5F;
    channels.factor.at[c] = 0.5F + 0.125F * value;
    channels.shift.at[c] = 0.3F - 0.05F * value;
  }
  return channels;
}

// Lengths about the width of a vector, about a piece of the sums, and more.
constexpr int64_t kPixels[] = {1, 3, 16, 35, 255, 256, 257, 1225, 5000};

// Calls check(kernels, tile) for all of them.
template <class Check>
void for_each_tile(const Check& check) {
  for (const LaneKernels* kernels : instruction_sets(DType::f32)) {
    for (const int block : {1, 8, 16}) {
      for (const int64_t pixels : kPixels) {
        INFO(std::string(kernels->name) << ", blocks of " << block << ", " << pixels << " pixels");
        check(*kernels, Tile{pixels, block});
      }
    }
  }
}

double normalized(const NormChannels& channels, int c, double x) {
  return (x - double{channels.mean.at[c]}) * double{channels.factor.at[c]} + double{channels.shift.at[c]};
}

}  // namespace

TEST_CASE("moments of a tile are exact also where the mean is far larger than the deviation") {
  for (const double mean : {0.0, 1000.0}) {
    for_each_tile([&](const LaneKernels& kernels, const Tile& tile) {
      const std::vector<float> x = random_values(tile.pixels * tile.block, 1, mean);
      MomentSums sums;
      kernels.moments(tile, x.data(), sums);
      for (int c = 0; c < tile.block; ++c) {
        double sum = 0, squares = 0;
        for (int64_t p = 0; p < tile.pixels; ++p) sum += x[p * tile.block + c];
        const double expected = sum / static_cast<double>(tile.pixels);
        for (int64_t p = 0; p < tile.pixels; ++p) squares += std::pow(x[p * tile.block + c] - expected, 2);
        CHECK(sums.mean.at[c] == Approx(expected).margin(mean > 0 ? 1e-4 : 1e-6));
        CHECK(sums.m2.at[c] == Approx(squares).epsilon(1e-5).margin(1e-6));
      }
    });
  }
}

TEST_CASE("a tile is normalized and goes through its ReLU, in place too") {
  for_each_tile([&](const LaneKernels& kernels, const Tile& tile) {
    const NormChannels channels = channels_of(tile.block);
    const std::vector<float> x = random_values(tile.pixels * tile.block, 2, 0);
    for (const bool relu : {false, true}) {
      std::vector<float> y(x.size()), in_place = x;
      kernels.normalize({.tile = tile, .x = x.data(), .relu = relu, .channels = channels}, y.data());
      kernels.normalize({.tile = tile, .x = in_place.data(), .relu = relu, .channels = channels}, in_place.data());
      CHECK(in_place == y);
      for (size_t i = 0; i < x.size(); ++i) {
        const double value = normalized(channels, static_cast<int>(i % static_cast<size_t>(tile.block)), x[i]);
        if (std::abs(y[i] - (relu ? std::max(value, 0.0) : value)) > 1e-5) FAIL("element " << i);
      }
    }
  });
}

TEST_CASE("a NaN passes through normalization and its ReLU") {
  for_each_tile([&](const LaneKernels& kernels, const Tile& tile) {
    const NormChannels channels = channels_of(tile.block);
    std::vector<float> x(static_cast<size_t>(tile.pixels * tile.block), 1.0F);
    x.back() = std::nanf("");
    kernels.normalize({.tile = tile, .x = x.data(), .relu = true, .channels = channels}, x.data());
    CHECK(std::isnan(x.back()));
  });
}

TEST_CASE("the gradient of a tile knows the mask of the ReLU from the input alone") {
  for_each_tile([&](const LaneKernels& kernels, const Tile& tile) {
    const NormChannels channels = channels_of(tile.block);
    NormGradientChannels slopes{};
    for (int c = 0; c < tile.block; ++c) {
      slopes.slope.at[c] = 0.25F;
      slopes.offset.at[c] = 0.01F * static_cast<float>(c);
    }
    const std::vector<float> x = random_values(tile.pixels * tile.block, 3, 0);
    const std::vector<float> dy = random_values(tile.pixels * tile.block, 4, 0);
    for (const bool relu : {false, true}) {
      const NormTile norm{tile, x.data(), dy.data(), relu, channels};
      GradientSums sums;
      kernels.gradient_sums(norm, sums);
      std::vector<float> dx = dy;
      kernels.gradient({tile, x.data(), dx.data(), relu, channels}, slopes, dx.data());
      std::array<double, kMaxBlock> gradients{}, products{};
      for (size_t i = 0; i < x.size(); ++i) {
        const auto c = static_cast<int>(i % static_cast<size_t>(tile.block));
        const double g = relu && normalized(channels, c, x[i]) <= 0 ? 0 : dy[i];
        const double centered = x[i] - double{channels.mean.at[c]};
        gradients[static_cast<size_t>(c)] += g;
        products[static_cast<size_t>(c)] += g * centered;
        const double expected =
            double{channels.factor.at[c]} * g - double{slopes.slope.at[c]} * centered - double{slopes.offset.at[c]};
        if (std::abs(dx[i] - expected) > 1e-5) FAIL("element " << i << ": " << dx[i] << " for " << expected);
      }
      for (int c = 0; c < tile.block; ++c) {
        CHECK(sums.gradient.at[c] == Approx(gradients[static_cast<size_t>(c)]).epsilon(1e-5).margin(1e-3));
        CHECK(sums.product.at[c] == Approx(products[static_cast<size_t>(c)]).epsilon(1e-5).margin(1e-3));
      }
    }
  });
}

namespace {

using Bits = std::vector<uint16_t>;

Bits rounded(const std::vector<float>& values) {
  Bits bits(values.size());
  to_half(DType::bf16, values, bits);
  return bits;
}

std::vector<float> widened(const Bits& bits) {
  std::vector<float> values(bits.size());
  from_half(DType::bf16, bits, values);
  return values;
}

// Values of every kind: normal, tiny, huge, infinite, NaN, and halfway between two values of bfloat16.
std::vector<float> awkward_values(int64_t count, uint64_t key) {
  std::vector<float> values = random_values(count, key, 0);
  const float special[] = {0.0F, -0.0F, 1e-40F, HUGE_VALF, std::nanf(""), 1.00390625F, 1.01171875F};
  for (size_t i = 0; i < values.size(); i += 5) values[i] = special[i / 5 % std::size(special)];
  return values;
}

// Whether a is b up to this relative error; a NaN or an infinity is only itself. Compilers may fuse a product and a sum
// in one of two instantiations and not in the other, so the last bits differ.
bool near(double a, double b, double error) {
  if (!std::isfinite(b)) return a == b || (std::isnan(a) && std::isnan(b));
  return std::abs(a - b) <= error * (1 + std::abs(b));
}

bool near(const ChannelValues<double>& a, const ChannelValues<double>& b, int block) {
  return std::equal(a.at, a.at + block, b.at, [](double x, double y) { return near(x, y, 1e-4); });
}

bool near(const Bits& a, const std::vector<float>& b) {
  constexpr double kLastPlace = 1.0 / 128;
  return std::ranges::equal(widened(a), widened(rounded(b)), [](float x, float y) { return near(x, y, kLastPlace); });
}

}  // namespace

TEST_CASE("tiles of bfloat16 give what float32 tiles with the same values give, rounded") {
  const std::vector<const LaneKernels*> plain_sets = instruction_sets(DType::f32);
  const std::vector<const LaneKernels*> half_sets = instruction_sets(DType::bf16);
  for (size_t set = 0; set < plain_sets.size(); ++set) {
    const LaneKernels &plain = *plain_sets[set], &half = *half_sets[set];
    for (const int block : {1, 8, 16}) {
      for (const int64_t pixels : kPixels) {
        for (const bool relu : {false, true}) {
          INFO(std::string(plain.name) << ", blocks of " << block << ", " << pixels << " pixels");
          const Tile tile{pixels, block};
          const NormChannels channels = channels_of(block);
          const Bits x = rounded(awkward_values(pixels * block, 5)), dy = rounded(random_values(pixels * block, 6, 0));
          const std::vector<float> wide_x = widened(x), wide_dy = widened(dy);
          const NormTile norm{tile, x.data(), dy.data(), relu, channels};
          const NormTile wide_norm{tile, wide_x.data(), wide_dy.data(), relu, channels};

          MomentSums moments{}, wide_moments{};
          half.moments(tile, x.data(), moments);
          plain.moments(tile, wide_x.data(), wide_moments);
          CHECK(near(moments.mean, wide_moments.mean, block));
          CHECK(near(moments.m2, wide_moments.m2, block));

          Bits y(x.size());
          std::vector<float> wide_y(x.size());
          half.normalize(norm, y.data());
          plain.normalize(wide_norm, wide_y.data());
          CHECK(near(y, wide_y));

          GradientSums sums{}, wide_sums{};
          half.gradient_sums(norm, sums);
          plain.gradient_sums(wide_norm, wide_sums);
          CHECK(near(sums.gradient, wide_sums.gradient, block));
          CHECK(near(sums.product, wide_sums.product, block));

          NormGradientChannels slopes{};
          for (int c = 0; c < block; ++c) slopes.slope.at[c] = 0.25F;
          half.gradient(norm, slopes, y.data());
          plain.gradient(wide_norm, slopes, wide_y.data());
          CHECK(near(y, wide_y));
        }
      }
    }
  }
}
