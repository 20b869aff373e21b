#include "data/image/crop_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

int64_t round_to_int(double value) { return static_cast<int64_t>(std::llround(value)); }

CropPlan whole_image(ImageSize image, int64_t size) {
  return {.rows = {.extent = image.height, .target = size}, .columns = {.extent = image.width, .target = size}};
}

// Plans to resize the whole image so that its short side becomes `short_side`. The long side is truncated to whole
// pixels as in torchvision's Resize. No part is selected yet.
CropPlan keep_aspect(ImageSize image, int64_t short_side) {
  const auto target = [&](int64_t side) { return side * short_side / std::min(image.height, image.width); };
  return {.rows = {.extent = image.height, .target = target(image.height)},
          .columns = {.extent = image.width, .target = target(image.width)}};
}

// Selects the central part; halves are rounded to even as in torchvision's CenterCrop.
CropPlan central(CropPlan plan, int64_t size) {
  for (AxisMap* axis : {&plan.rows, &plan.columns}) {
    axis->first = static_cast<int64_t>(std::nearbyint(static_cast<double>(axis->target - size) / 2));
  }
  return plan;
}

struct AreaCrop {
  double min_area;
  double max_area;
  double min_aspect;  // width / height
  double max_aspect;
  bool log_aspect;  // draw the logarithm of the aspect uniformly, so that wide and tall are equally likely
  int attempts;
};
constexpr AreaCrop kInceptionCrop = {0.05, 1.0, 0.75, 1.33, false, 100};
constexpr AreaCrop kTorchvisionCrop = {0.08, 1.0, 3.0 / 4.0, 4.0 / 3.0, true, 10};

// Returns a window of random area, aspect and position, resized to the output; nothing if no attempt fits.
std::optional<CropPlan> random_area(const AreaCrop& crop, ImageSize image, int64_t size, RandomStream& random) {
  const auto area = static_cast<double>(image.height * image.width);
  for (int attempt = 0; attempt < crop.attempts; ++attempt) {
    const double wanted = area * random.uniform(crop.min_area, crop.max_area);
    const double aspect = crop.log_aspect
                              ? std::exp(random.uniform(std::log(crop.min_aspect), std::log(crop.max_aspect)))
                              : random.uniform(crop.min_aspect, crop.max_aspect);
    const int64_t width = round_to_int(std::sqrt(wanted * aspect));
    const int64_t height = round_to_int(std::sqrt(wanted / aspect));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    const auto y = static_cast<int64_t>(random.below(static_cast<uint64_t>(image.height - height + 1)));
    const auto x = static_cast<int64_t>(random.below(static_cast<uint64_t>(image.width - width + 1)));
    return CropPlan{.rows = {.begin = y, .extent = height, .target = size},
                    .columns = {.begin = x, .extent = width, .target = size}};
  }
  return std::nullopt;
}

// Returns the largest central window whose aspect is within the limits, torchvision's fallback for thin images.
CropPlan central_window(const AreaCrop& crop, ImageSize image, int64_t size) {
  const auto limit = [](int64_t side, double other) { return std::clamp<int64_t>(round_to_int(other), 1, side); };
  const int64_t width = limit(image.width, static_cast<double>(image.height) * crop.max_aspect);
  const int64_t height = limit(image.height, static_cast<double>(image.width) / crop.min_aspect);
  return {.rows = {.begin = (image.height - height) / 2, .extent = height, .target = size},
          .columns = {.begin = (image.width - width) / 2, .extent = width, .target = size}};
}

CropPlan padded_crop(ImageSize image, int64_t size, RandomStream& random) {
  CropPlan plan = keep_aspect(image, size);
  const int64_t pad = size / 8;
  for (AxisMap* axis : {&plan.rows, &plan.columns}) {
    const auto choices = static_cast<uint64_t>(axis->target + 2 * pad - size + 1);
    axis->first = static_cast<int64_t>(random.below(choices)) - pad;
  }
  return plan;
}

// Returns the size of torchvision's Resize before its CenterCrop: 256 for 224.
int64_t torchvision_short_side(int64_t size) { return round_to_int(static_cast<double>(size) * 8.0 / 7.0); }

}  // namespace

CropPlan plan_training_crop(Augment augment, ImageSize image, int64_t size, RandomStream& random) {
  CropPlan plan;
  switch (augment) {
    case Augment::none:
      return whole_image(image, size);
    case Augment::crop_flip:
      plan = padded_crop(image, size, random);
      break;
    case Augment::torchvision:
      plan = random_area(kTorchvisionCrop, image, size, random).value_or(central_window(kTorchvisionCrop, image, size));
      break;
    case Augment::inception:
      plan = random_area(kInceptionCrop, image, size, random).value_or(whole_image(image, size));
      break;
  }
  plan.columns.mirror = (random.bits() >> 63) != 0;
  return plan;
}

CropPlan plan_evaluation_crop(Augment augment, ImageSize image, int64_t size) {
  switch (augment) {
    case Augment::none:
      break;
    case Augment::crop_flip:
      return central(keep_aspect(image, size), size);
    case Augment::torchvision:
      return central(keep_aspect(image, torchvision_short_side(size)), size);
    case Augment::inception:
      // The crop has 87.5 % of each side. As in TensorFlow's central_crop, each end loses a sixteenth in whole pixels.
      return {.rows = {.begin = image.height / 16, .extent = image.height - 2 * (image.height / 16), .target = size},
              .columns = {.begin = image.width / 16, .extent = image.width - 2 * (image.width / 16), .target = size}};
  }
  return whole_image(image, size);
}

std::string evaluation_crop_text(Augment augment, int64_t size) {
  switch (augment) {
    case Augment::none:
      break;
    case Augment::crop_flip:
      return fmt::format("short side to {0}, central crop of {0} x {0}", size);
    case Augment::torchvision:
      return fmt::format("short side to {1}, central crop of {0} x {0}", size, torchvision_short_side(size));
    case Augment::inception:
      return fmt::format("central 87.5 % of each side, resized to {0} x {0}", size);
  }
  return fmt::format("whole image, resized to {0} x {0}", size);
}

}  // namespace lockstep
