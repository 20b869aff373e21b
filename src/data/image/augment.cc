#include "lockstep/data/image/augment.h"

#include <array>
#include <utility>

#include "data/image/color_distortion.h"
#include "data/image/crop_plan.h"
#include "data/image/resample.h"
#include "lockstep/base/error.h"
#include "lockstep/base/random.h"

namespace lockstep {
namespace {

// A new augmentation needs a row here and its crops in crop_plan.cc.
constexpr std::array kAugments = {
    std::pair<std::string_view, Augment>{"none", Augment::none},
    std::pair<std::string_view, Augment>{"crop_flip", Augment::crop_flip},
    std::pair<std::string_view, Augment>{"torchvision", Augment::torchvision},
    std::pair<std::string_view, Augment>{"inception", Augment::inception},
};
constexpr std::array kNormalizes = {
    std::pair<std::string_view, Normalize>{"none", Normalize::none},
    std::pair<std::string_view, Normalize>{"inception", Normalize::inception},
    std::pair<std::string_view, Normalize>{"torchvision", Normalize::torchvision},
};

template <class Table>
auto find_word(const Table& table, std::string_view name) -> std::optional<decltype(table[0].second)> {
  for (const auto& [word, value] : table) {
    if (word == name) return value;
  }
  return std::nullopt;
}

// output = input * scale + shift, for one channel.
struct Affine {
  float scale = 1.0F;
  float shift = 0.0F;
};

constexpr std::array kMean = {0.485F, 0.456F, 0.406F};  // of ImageNet, with full intensity 1
constexpr std::array kDeviation = {0.229F, 0.224F, 0.225F};

// Returns the map for pixels whose full intensity is `full` (255 or 1); `stored_full` is the full intensity of the
// stored data.
Affine normalization(Normalize normalize, float full, float stored_full, size_t channel) {
  switch (normalize) {
    case Normalize::none:
      break;
    case Normalize::inception:
      return {.scale = 2.0F / full, .shift = -1.0F};
    case Normalize::torchvision:
      return {.scale = 1.0F / (full * kDeviation[channel]), .shift = -kMean[channel] / kDeviation[channel]};
  }
  return {.scale = stored_full / full};
}

Affine operator*(Affine second, Affine first) {
  return {.scale = second.scale * first.scale, .shift = second.scale * first.shift + second.shift};
}

// Converts from the mean and deviation of ImageNet to 0.5 and 0.5, with which the ported weights were trained.
Affine input_transform(size_t channel) {
  return {.scale = kDeviation[channel] / 0.5F, .shift = (kMean[channel] - 0.5F) / 0.5F};
}

Affine normalization(const TransformOptions& options, float full, float stored_full, size_t channel) {
  const Affine affine = normalization(options.normalize, full, stored_full, channel);
  return options.transform_input ? input_transform(channel) * affine : affine;
}

void apply_affine(Affine affine, float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = values[i] * affine.scale + affine.shift;
}

}  // namespace

std::optional<Augment> parse_augment(std::string_view name) { return find_word(kAugments, name); }
std::optional<Normalize> parse_normalize(std::string_view name) { return find_word(kNormalizes, name); }

Transform::Transform(const TransformOptions& options) : options_(options) {
  require(options.image_size > 0, "an image size of {}", options.image_size);
}

// The crop of a sample, and the stream of random numbers from which its colors are drawn.
struct Transform::Planned {
  RandomStream random;
  CropPlan crop;
};

Transform::Planned Transform::plan(int64_t height, int64_t width, SampleRef sample) const {
  Planned planned{RandomStream(random_key(options_.seed, fnv1a64("augment"), sample.epoch, sample.index)), {}};
  const ImageSize source = {.height = height, .width = width};
  planned.crop = options_.training ? plan_training_crop(options_.augment, source, options_.image_size, planned.random)
                                   : plan_evaluation_crop(options_.augment, source, options_.image_size);
  return planned;
}

ImageWindow Transform::source_window(int64_t height, int64_t width, SampleRef sample) const {
  const CropPlan crop = plan(height, width, sample).crop;
  const bool may_shrink = options_.training && options_.jpeg_scaling;
  return window_of(crop, {.height = options_.image_size, .width = options_.image_size},
                   may_shrink ? shrink_of(crop) : 1);
}

bool Transform::distorts() const { return options_.training && options_.augment == Augment::inception; }

void Transform::apply(const ImageView& image, SampleRef sample, TransformScratch& scratch, float* output) const {
  const int64_t size = options_.image_size;
  const int64_t pixels = size * size;
  auto [random, crop] = plan(image.height, image.width, sample);
  resample(image, crop, {.height = size, .width = size}, scratch, output);

  const float stored_full = image.u8 != nullptr ? 255.0F : 1.0F;
  float full = stored_full;
  if (distorts()) {
    apply_affine({.scale = 1.0F / full}, output, 3 * pixels);
    full = 1.0F;
    distort_color(draw_color_distortion(random), output, pixels);
  }
  for (size_t c = 0; c < 3; ++c) {
    const Affine affine = normalization(options_, full, stored_full, c);
    apply_affine(affine, output + static_cast<int64_t>(c) * pixels, pixels);
  }
}

void Transform::apply(const ImageView& image, SampleRef sample, TransformScratch& scratch, uint8_t* output,
                      ImageChanges& changes) const {
  auto [random, crop] = plan(image.height, image.width, sample);
  changes = {.mirrored = std::exchange(crop.columns.mirror, false) ? 1.0F : 0.0F};
  if (distorts()) changes.color = draw_color_distortion(random);
  resample(image, crop, {.height = options_.image_size, .width = options_.image_size}, scratch, output);
}

PreparePixels Transform::device_part() const {
  PreparePixels part{.changes = options_.training && options_.augment != Augment::none, .distort = distorts()};
  for (size_t c = 0; c < 3; ++c) {
    const Affine affine = normalization(options_, part.distort ? 1.0F : 255.0F, 255.0F, c);
    part.scale[c] = affine.scale;
    part.shift[c] = affine.shift;
  }
  return part;
}

}  // namespace lockstep
