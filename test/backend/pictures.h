// Images of random bytes, with random changes of all kinds, and what PreparePixels makes of them.
#pragma once

#include <cstring>
#include <vector>

#include "lockstep/base/random.h"
#include "lockstep/ops/pixels.h"
#include "test/backend/op_runner.h"

namespace lockstep::test {

struct Pictures {
  HostTensor pixels, changes;

  PreparePixels operation(bool distort, DType to) const {
    const float full = distort ? 1.0F : 255.0F;
    return {
        .scale = {2 / full, 3 / full, 4 / full}, .shift = {-1, 0, 0.5F}, .changes = true, .distort = distort, .to = to};
  }
  std::vector<double> prepare(const Backend& backend, bool distort, DType to) const {
    const std::vector<Step> steps{{operation(distort, to), {0, 1}}};
    return run_program(backend, std::vector{pixels, changes}, steps).values[2].values;
  }
};

// More pixels than a block has threads. Every eighth pixel is gray, every ninth black or white, which have no hue.
inline Pictures random_pictures() {
  constexpr int64_t kImages = 9, kHeight = 29, kWidth = 37;
  Pictures pictures{{{kImages, kHeight, kWidth, 3}, DType::u8, {}}, {{kImages, kImageChanges}, DType::f32, {}}};
  RandomStream random(random_key(1));
  const auto byte = [&] { return static_cast<double>(random.below(256)); };
  for (int64_t i = 0; i < kImages * kHeight * kWidth; ++i) {
    const double gray = i % 9 == 0 ? 255.0 * static_cast<double>(i % 2) : byte();
    for (int c = 0; c < 3; ++c) pictures.pixels.values.push_back(i % 8 == 0 || i % 9 == 0 ? gray : byte());
  }
  for (int64_t n = 0; n < kImages; ++n) {
    const auto uniform = [&](double low, double high) { return static_cast<float>(random.uniform(low, high)); };
    const auto bit = [&](int64_t of) { return static_cast<float>(n >> of & 1); };
    ImageChanges change{bit(0),
                        {bit(1), uniform(-0.13, 0.13), uniform(0.5, 1.5), uniform(-0.2, 0.2), uniform(0.5, 1.5)}};
    if (n == 8) change = {};
    float row[kImageChanges];
    std::memcpy(row, &change, sizeof row);
    pictures.changes.values.insert(pictures.changes.values.end(), row, row + kImageChanges);
  }
  return pictures;
}

}  // namespace lockstep::test
