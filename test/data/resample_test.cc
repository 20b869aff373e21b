#include "data/image/resample.h"

#include <numeric>

#include "test/catch.h"

using namespace lockstep;

namespace {

// One row of gray pixels, resampled along x; returns the first channel's first line.
std::vector<float> stretch(const std::vector<float>& pixels, AxisMap columns, int64_t size) {
  const ImageView view = {.f32 = pixels.data(),
                          .channels = 1,
                          .height = 1,
                          .width = std::ssize(pixels),
                          .layout = ImageView::Layout::planar};
  TransformScratch scratch;
  std::vector<float> output(static_cast<size_t>(3 * size * size));
  resample(view, {.rows = {.extent = 1, .target = size}, .columns = columns}, {.height = size, .width = size}, scratch,
           output.data());
  return {output.begin(), output.begin() + size};
}

}  // namespace

TEST_CASE("an unchanged size copies exactly") {
  std::vector<uint8_t> pixels(5 * 5 * 3);
  std::iota(pixels.begin(), pixels.end(), uint8_t{100});
  const ImageView view = {.u8 = pixels.data(), .height = 5, .width = 5};
  TransformScratch scratch;
  std::vector<float> output(pixels.size());
  const AxisMap whole = {.extent = 5, .target = 5};
  resample(view, {.rows = whole, .columns = whole}, {.height = 5, .width = 5}, scratch, output.data());
  for (size_t c = 0; c < 3; ++c) {
    for (size_t i = 0; i < 25; ++i) CHECK(output[c * 25 + i] == static_cast<float>(pixels[3 * i + c]));
  }
}

TEST_CASE("interleaved and planar layouts of one image give the same") {
  std::vector<uint8_t> interleaved(4 * 6 * 3);
  std::vector<uint8_t> planar(interleaved.size());
  for (size_t i = 0; i < 24; ++i) {
    for (size_t c = 0; c < 3; ++c) interleaved[3 * i + c] = planar[c * 24 + i] = static_cast<uint8_t>(7 * i + 31 * c);
  }
  const CropPlan plan = {.rows = {.begin = 1, .extent = 3, .target = 8, .first = 1},
                         .columns = {.extent = 5, .target = 4, .mirror = true}};
  TransformScratch scratch;
  std::vector<float> a(3 * 16);
  std::vector<float> b(3 * 16);
  resample({.u8 = interleaved.data(), .height = 4, .width = 6}, plan, {.height = 4, .width = 4}, scratch, a.data());
  resample({.u8 = planar.data(), .height = 4, .width = 6, .layout = ImageView::Layout::planar}, plan,
           {.height = 4, .width = 4}, scratch, b.data());
  CHECK(a == b);
}

TEST_CASE("enlarging interpolates between pixel centers and repeats the edge") {
  CHECK(stretch({0.0F, 1.0F}, {.extent = 2, .target = 4}, 4) == std::vector<float>{0.0F, 0.25F, 0.75F, 1.0F});
}

TEST_CASE("shrinking averages over the wider triangle") {
  // Scale 2: weights 1/4, 3/4, 3/4, 1/4 around each center, normalized over what lies inside the image.
  const auto out = stretch({8.0F, 0.0F, 0.0F, 0.0F}, {.extent = 4, .target = 2}, 2);
  CHECK(out[0] == Approx(8.0 * 0.75 / 1.75));
  CHECK(out[1] == Approx(8.0 * 0.0));
  CHECK(stretch(std::vector<float>(100, 3.0F), {.extent = 100, .target = 7}, 7)[3] == Approx(3.0F));
}

// By hand, for tf.image.resize with antialias: 4 pixels to 3 are centers at 1/6, 3/2 and 17/6 and a triangle that
// reaches 4/3 to either side.
TEST_CASE("shrinking by 4/3 has TensorFlow's weights: 7:3, 1:1, 3:7") {
  const auto out = stretch({10.0F, 20.0F, 40.0F, 80.0F}, {.extent = 4, .target = 3}, 3);
  CHECK(out[0] == Approx(0.7 * 10 + 0.3 * 20));
  CHECK(out[1] == Approx(0.5 * 20 + 0.5 * 40));
  CHECK(out[2] == Approx(0.3 * 40 + 0.7 * 80));
}

TEST_CASE("a smaller source is read at the positions of the plan for the whole one") {
  // A ramp of 32 pixels whose halves are the means of two; the crop [5, 29) to 4 pixels.
  std::vector<float> whole, half;
  for (int i = 0; i < 32; ++i) whole.push_back(static_cast<float>(i));
  for (int i = 0; i < 16; ++i) half.push_back(static_cast<float>(2 * i) + 0.5F);
  const CropPlan plan = {.rows = {.extent = 1, .target = 4}, .columns = {.begin = 5, .extent = 24, .target = 4}};
  const OutputSize size = {.height = 4, .width = 4};
  const ImageWindow window = window_of(plan, size, 2);
  CHECK(window.left == 2);
  CHECK(window.left + window.width <= 15);
  ImageView view = {.f32 = half.data() + window.left,
                    .channels = 1,
                    .height = 1,
                    .width = 32,
                    .layout = ImageView::Layout::planar,
                    .window = window};
  TransformScratch scratch;
  std::vector<float> output(3 * 16);
  resample(view, plan, size, scratch, output.data());
  const auto expected = stretch(whole, plan.columns, 4);
  for (size_t i = 0; i < 4; ++i) CHECK(output[i] == Approx(expected[i]).margin(0.5));
}

TEST_CASE("a window, its place in the stretched image, black outside and mirroring") {
  const std::vector<float> pixels = {1, 2, 3, 4, 5, 6};
  CHECK(stretch(pixels, {.begin = 2, .extent = 3, .target = 3}, 3) == std::vector<float>{3, 4, 5});
  CHECK(stretch(pixels, {.extent = 6, .target = 6, .first = 3}, 3) == std::vector<float>{4, 5, 6});
  CHECK(stretch(pixels, {.extent = 6, .target = 6, .first = -2}, 4) == std::vector<float>{0, 0, 1, 2});
  CHECK(stretch(pixels, {.extent = 6, .target = 6, .first = 4}, 4) == std::vector<float>{5, 6, 0, 0});
  CHECK(stretch(pixels, {.extent = 6, .target = 6, .first = 4, .mirror = true}, 4) == std::vector<float>{0, 0, 6, 5});
}

TEST_CASE("a window does not see pixels outside it") {
  const std::vector<float> pixels = {100, 1, 1, 100};
  for (const float value : stretch(pixels, {.begin = 1, .extent = 2, .target = 5}, 5)) CHECK(value == Approx(1.0F));
}

TEST_CASE("a window outside the image is refused") {
  CHECK_THROWS(stretch({1, 2, 3}, {.begin = 1, .extent = 3, .target = 3}, 3));
}
