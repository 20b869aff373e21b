// PreparePixels: known values, and a GPU against the reference backend. device_part_test.cc compares it with the
// loader.
#include <cmath>

#include "test/backend/check_case.h"
#include "test/backend/pictures.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("bytes are mirrored and normalized by channel") {
  const Pictures pictures{{{1, 1, 2, 3}, DType::u8, {0, 51, 255, 102, 204, 153}},
                          {{1, kImageChanges}, DType::f32, {1, 0, 0, 1, 0, 1}}};
  const auto reference = make_backend("reference", {});
  const std::vector<double> y = pictures.prepare(*reference, false, DType::f64);
  const double expected[] = {2 * 0.4 - 1, -1, 3 * 0.8, 3 * 0.2, 4 * 0.6 + 0.5, 4.5};
  REQUIRE(y.size() == std::size(expected));
  for (size_t i = 0; i < y.size(); ++i) CHECK(y[i] == Approx(expected[i]));
  const std::vector<double> undistorted = pictures.prepare(*reference, true, DType::f64);
  for (size_t i = 0; i < y.size(); ++i) CHECK(undistorted[i] == Approx(expected[i]));
}

TEST_CASE("contrast changes before hue or after it, from each channel's mean") {
  // Red and black: the mean of red is 0.5. A third of a turn moves red to green.
  const Pictures before{{{1, 1, 2, 3}, DType::u8, {255, 0, 0, 0, 0, 0}},
                        {{1, kImageChanges}, DType::f32, {0, 1, 0, 1, 1.0 / 3, 0.5}}};
  Pictures after = before;
  after.changes.values[1] = 0;
  const auto reference = make_backend("reference", {});
  for (const Pictures& pictures : {before, after}) {
    const std::vector<double> y = pictures.prepare(*reference, true, DType::f64);
    CHECK(y[2] == Approx(3 * 0.75));  // green of both pixels
    CHECK(y[3] == Approx(3 * 0.25));
  }
  // Values are cut off at the end only: 1.1 and 0.1 have the mean 0.6, and become 0.85 and 0.35.
  Pictures bright = after;
  bright.changes.values = {0, 0, 0.1, 1, 0, 0.5};
  const std::vector<double> y = bright.prepare(*reference, true, DType::f64);
  CHECK(y[0] == Approx(2 * 0.85 - 1));
  CHECK(y[1] == Approx(2 * 0.35 - 1));
}

// Colors are continuous in the pixel's values and change by no more than 20 times as much (device_part_test.cc), so
// that roundings in float32 stay small; y is rounded once more in 16 bits.
TEST_CASE("a GPU makes images of bytes as the reference backend does, in every type", "[gpu]") {
  if (!gpu_unavailable_reason().empty()) {
    WARN("skipped, no usable GPU: " << gpu_unavailable_reason());
    return;
  }
  const auto gpu = make_backend("cuda", {}), reference = make_backend("reference", {});
  const Pictures pictures = random_pictures();
  for (const bool distort : {false, true}) {
    const std::vector<double> expected = pictures.prepare(*reference, distort, DType::f64);
    const auto check = [&](DType to, double rounding) {
      check_case((distort ? "distorted in " : "plain in ") + std::string(dtype_name(to)), [&] {
        const std::vector<double> y = pictures.prepare(*gpu, distort, to);
        REQUIRE(y.size() == expected.size());
        double worst = 0;
        for (size_t i = 0; i < y.size(); ++i) {
          worst = std::max(worst, std::abs(y[i] - expected[i]) - rounding * std::abs(expected[i]));
        }
        CHECK(worst < 1e-4);
      });
    };
    check(DType::f32, 0);
    check(DType::f16, 0x1p-11);
    check(DType::bf16, 0x1p-8);
  }
}

TEST_CASE("a GPU writes zeros into the padding of images in 16 bits", "[gpu]") {
  if (!gpu_unavailable_reason().empty()) {
    WARN("skipped, no usable GPU: " << gpu_unavailable_reason());
    return;
  }
  const Pictures pictures = random_pictures();
  const HostTensor weights{{8, 3, 1, 1}, DType::f32, std::vector<double>(24, 0.25)};
  const auto convolved = [&](const Backend& backend, const HostTensor& w, DType to) {
    std::vector<Step> steps{{pictures.operation(false, to), {0, 1}}};
    if (w.dtype == to) {
      steps.push_back({Conv2d{}, {3, 2}});
    } else {
      steps.push_back({Cast{to}, {2}});
      steps.push_back({Conv2d{}, {3, 4}});
    }
    return run_program(backend, std::vector{pictures.pixels, pictures.changes, w}, steps).values.back().values;
  };
  const auto expected =
      convolved(*make_backend("reference", {}), {weights.shape, DType::f64, weights.values}, DType::f64);
  for (const DType to : {DType::f16, DType::bf16}) {
    check_case(std::string(dtype_name(to)), [&] {
      CHECK(relative_error(convolved(*make_backend("cuda", {}), weights, to), expected) < 0x1p-6);  // NaN is not
    });
  }
}
