#include "lockstep/data/image/augment.h"

#include <cmath>

#include "lockstep/base/random.h"
#include "lockstep/data/image/decode.h"
#include "test/catch.h"
#include "test/data/image_writer.h"

using namespace lockstep;

namespace {

struct TestImage {
  std::vector<uint8_t> pixels;
  ImageView view;
};

TestImage make_image(int64_t height, int64_t width) {
  TestImage image;
  for (int64_t i = 0; i < height * width * 3; ++i) image.pixels.push_back(static_cast<uint8_t>(i * 37 % 256));
  image.view = {.u8 = image.pixels.data(), .height = height, .width = width};
  return image;
}

std::vector<float> apply(const TransformOptions& options, const ImageView& view, SampleRef sample) {
  std::vector<float> output(static_cast<size_t>(3 * options.image_size * options.image_size));
  TransformScratch scratch;
  Transform(options).apply(view, sample, scratch, output.data());
  return output;
}

constexpr Augment kAll[] = {Augment::none, Augment::crop_flip, Augment::torchvision, Augment::inception};

}  // namespace

TEST_CASE("the crop of evaluation is named as it is taken") {
  CHECK(evaluation_crop_text(Augment::none, 224) == "whole image, resized to 224 x 224");
  CHECK(evaluation_crop_text(Augment::crop_flip, 32) == "short side to 32, central crop of 32 x 32");
  CHECK(evaluation_crop_text(Augment::torchvision, 224) == "short side to 256, central crop of 224 x 224");
  CHECK(evaluation_crop_text(Augment::inception, 299) == "central 87.5 % of each side, resized to 299 x 299");
}

TEST_CASE("the configuration's words") {
  CHECK(parse_augment("crop_flip") == Augment::crop_flip);
  CHECK(parse_augment("torchvision") == Augment::torchvision);
  CHECK(parse_normalize("none") == Normalize::none);
  CHECK_FALSE(parse_augment("Inception").has_value());
  CHECK_FALSE(parse_normalize("").has_value());
}

TEST_CASE("normalization maps bytes and floats of full intensity alike") {
  const std::vector<uint8_t> bytes = {0, 255, 51};
  const std::vector<float> floats = {0.0F, 1.0F, 0.2F};
  const ImageView u8 = {.u8 = bytes.data(), .height = 1, .width = 1};
  const ImageView f32 = {.f32 = floats.data(), .height = 1, .width = 1};
  const auto normalize = [](const ImageView& view, Normalize how) {
    return apply({.normalize = how, .image_size = 1}, view, {});
  };
  CHECK(normalize(u8, Normalize::none) == std::vector<float>{0.0F, 255.0F, 51.0F});
  CHECK(normalize(f32, Normalize::none) == floats);
  for (const ImageView& view : {u8, f32}) {
    const auto inception = normalize(view, Normalize::inception);
    CHECK(inception[0] == Approx(-1.0F));
    CHECK(inception[1] == Approx(1.0F));
    CHECK(inception[2] == Approx(-0.6F));
    const auto transformed =
        apply({.normalize = Normalize::torchvision, .transform_input = true, .image_size = 1}, view, {});
    for (size_t c = 0; c < 3; ++c) CHECK(transformed[c] == Approx(inception[c]).margin(1e-6));
    const auto torchvision = normalize(view, Normalize::torchvision);
    CHECK(torchvision[0] == Approx(-0.485 / 0.229));
    CHECK(torchvision[1] == Approx((1.0 - 0.456) / 0.224));
    CHECK(torchvision[2] == Approx((0.2 - 0.406) / 0.225));
  }
}

TEST_CASE("a gray source fills three channels") {
  const std::vector<uint8_t> pixels = {9};
  const ImageView view = {.u8 = pixels.data(), .channels = 1, .height = 1, .width = 1};
  CHECK(apply({.normalize = Normalize::none, .image_size = 2}, view, {}) == std::vector<float>(12, 9.0F));
}

TEST_CASE("augmentation is a pure function of seed, epoch and index, and depends on each") {
  const TestImage image = make_image(40, 50);
  for (const Augment augment : {Augment::crop_flip, Augment::torchvision, Augment::inception}) {
    const TransformOptions options = {.augment = augment, .image_size = 16, .seed = 7};
    const SampleRef sample = {.epoch = 3, .index = 17};
    const auto once = apply(options, image.view, sample);
    CHECK(apply(options, image.view, sample) == once);
    CHECK(apply(options, image.view, {.epoch = 4, .index = 17}) != once);
    CHECK(apply(options, image.view, {.epoch = 3, .index = 18}) != once);
    TransformOptions other = options;
    other.seed = 8;
    CHECK(apply(other, image.view, sample) != once);
  }
}

TEST_CASE("a transform of the window it asks for is that of the whole picture") {
  RandomStream random(1);
  for (int i = 0; i < 400; ++i) {
    const auto side = [&] { return 1 + static_cast<int64_t>(random.below(i % 5 == 0 ? 4 : 90)); };
    const TestImage whole = make_image(side(), side());
    const ImageView& view = whole.view;
    const TransformOptions options = {.augment = kAll[i % 4], .image_size = 1 + i % 24, .training = i % 3 != 0};
    const SampleRef sample = {.epoch = 2, .index = i};
    const ImageWindow window = Transform(options).source_window(view.height, view.width, sample);
    REQUIRE(window.height >= 1);
    REQUIRE(window.width >= 1);
    REQUIRE(window.top + window.height <= view.height);
    REQUIRE(window.left + window.width <= view.width);
    std::vector<uint8_t> part;
    for (int64_t y = window.top; y < window.top + window.height; ++y) {
      const auto row = whole.pixels.begin() + (y * view.width + window.left) * 3;
      part.insert(part.end(), row, row + window.width * 3);
    }
    ImageView windowed = view;
    windowed.u8 = part.data();
    windowed.window = window;
    REQUIRE(apply(options, windowed, sample) == apply(options, view, sample));
  }
}

TEST_CASE("large crops are asked for at a smaller size in training, where that is allowed, and never in evaluation") {
  const auto shrink = [](const TransformOptions& options, int64_t side) {
    return Transform(options).source_window(side, side, {.epoch = 0, .index = 0}).shrink;
  };
  TransformOptions options = {.image_size = 100, .jpeg_scaling = true};  // the whole image
  CHECK(shrink(options, 299) == 1);
  CHECK(shrink(options, 300) == 2);
  CHECK(shrink(options, 599) == 2);
  CHECK(shrink(options, 600) == 4);
  CHECK(shrink(options, 1200) == 8);
  CHECK(shrink(options, 9000) == 8);
  CHECK(Transform(options).source_window(1200, 299, {}).shrink == 1);
  options.training = false;
  CHECK(shrink(options, 1200) == 1);
  options = {.image_size = 100, .jpeg_scaling = false};
  CHECK(shrink(options, 1200) == 1);
}

// The bound that docs/data.md states.
TEST_CASE("what is decoded at a smaller size differs from the full decode by less than 2 of 255 on average") {
  constexpr int kHeight = 603, kWidth = 805;  // not multiples of 8
  std::vector<uint8_t> pixels;                // waves of many lengths, with hard edges and noise
  RandomStream random(4);
  for (int y = 0; y < kHeight; ++y) {
    for (int x = 0; x < kWidth; ++x) {
      const double wave = 50 * std::sin(0.02 * x * (1 + 0.004 * y)) + 40 * std::cos(0.05 * y);
      const double edge = (x / 97 + y / 61) % 2 == 0 ? 30 : -30;
      for (int c = 0; c < 3; ++c) {
        pixels.push_back(static_cast<uint8_t>(128 + wave / (1 + c) + edge + random.uniform(-8, 8)));
      }
    }
  }
  const std::string encoded = encode_jpeg(pixels, kHeight, kWidth, {});
  for (const Augment augment : {Augment::none, Augment::torchvision, Augment::crop_flip}) {
    const auto transformed = [&](int64_t index, bool scaling, int64_t size) {
      const TransformOptions options = {
          .augment = augment, .normalize = Normalize::none, .image_size = size, .jpeg_scaling = scaling};
      const SampleRef sample = {.epoch = 0, .index = index};
      Image image;
      decode_image(std::as_bytes(std::span(encoded)), image, [&](int64_t height, int64_t width) {
        return Transform(options).source_window(height, width, sample);
      });
      CHECK((image.window.shrink == 1 || scaling));
      return apply(options,
                   {.u8 = image.pixels.data(), .height = image.height, .width = image.width, .window = image.window},
                   sample);
    };
    for (const int64_t size : {32, 50, 120}) {
      for (int64_t index = 0; index < 10; ++index) {
        const auto exact = transformed(index, false, size), scaled = transformed(index, true, size);
        double sum = 0;
        double largest = 0;
        for (size_t i = 0; i < exact.size(); ++i) {
          const double difference = std::abs(static_cast<double>(exact[i]) - static_cast<double>(scaled[i]));
          sum += difference;
          largest = std::max(largest, difference);
        }
        INFO("size " << size << ", sample " << index);
        CHECK(sum / static_cast<double>(exact.size()) < 2);
        CHECK(largest < 30);
      }
    }
  }
}

TEST_CASE("evaluation depends on the image alone") {
  const TestImage image = make_image(40, 50);
  for (const Augment augment : kAll) {
    const TransformOptions options = {.augment = augment, .image_size = 16, .seed = 7, .training = false};
    CHECK(apply(options, image.view, {.epoch = 0, .index = 1}) == apply(options, image.view, {.epoch = 9, .index = 2}));
  }
}

TEST_CASE("outputs are finite and within range for images of any size") {
  for (const auto& [height, width] : {std::pair(1, 1), std::pair(1, 2000), std::pair(2000, 1), std::pair(2, 2),
                                      std::pair(28, 29), std::pair(29, 29), std::pair(30, 29)}) {
    const TestImage image = make_image(height, width);
    for (const Augment augment : kAll) {
      for (const bool training : {true, false}) {
        const TransformOptions options = {.augment = augment, .image_size = 29, .training = training};
        for (int64_t index = 0; index < (training ? 20 : 1); ++index) {
          for (const float value : apply(options, image.view, {.epoch = 1, .index = index})) {
            REQUIRE(value >= -1.0001F);
            REQUIRE(value <= 1.0001F);
          }
        }
      }
    }
  }
}

TEST_CASE("with inception's colors and no normalization bytes stay on the scale 0..255") {
  const TestImage image = make_image(20, 20);
  float largest = 0.0F;
  const TransformOptions options = {.augment = Augment::inception, .normalize = Normalize::none, .image_size = 20};
  for (int64_t index = 0; index < 10; ++index) {
    for (const float value : apply(options, image.view, {.epoch = 0, .index = index})) {
      largest = std::max(largest, value);
    }
  }
  CHECK(largest > 200.0F);
  CHECK(largest <= 255.0F);
}
