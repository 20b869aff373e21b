#include "data/image/crop_plan.h"

#include <set>

#include "test/catch.h"

using namespace lockstep;

namespace {

constexpr Augment kAll[] = {Augment::none, Augment::crop_flip, Augment::torchvision, Augment::inception};

bool inside(const AxisMap& map, int64_t length) {
  return map.extent >= 1 && map.target >= 1 && map.begin >= 0 && map.begin + map.extent <= length;
}

}  // namespace

TEST_CASE("crops of one-pixel, thin and nearly fitting images stay inside the image and are never empty") {
  const ImageSize sizes[] = {{1, 1}, {1, 2000}, {2000, 1}, {2, 2}, {298, 299}, {299, 299}, {300, 299}};
  for (const ImageSize& size : sizes) {
    for (const Augment augment : kAll) {
      for (uint64_t seed = 0; seed < 10'000; ++seed) {
        RandomStream random(random_key(seed));
        const CropPlan plan = plan_training_crop(augment, size, 299, random);
        REQUIRE(inside(plan.rows, size.height));
        REQUIRE(inside(plan.columns, size.width));
      }
      const CropPlan plan = plan_evaluation_crop(augment, size, 299);
      CHECK(inside(plan.rows, size.height));
      CHECK(inside(plan.columns, size.width));
      CHECK_FALSE(plan.columns.mirror);
    }
  }
}

TEST_CASE("crop_flip on 32 x 32 is the usual CIFAR-10 recipe: 4 pixels of padding, all 81 positions, both ways round") {
  std::set<std::pair<int64_t, int64_t>> positions;
  int mirrored = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    RandomStream random(random_key(seed));
    const CropPlan plan = plan_training_crop(Augment::crop_flip, {32, 32}, 32, random);
    REQUIRE(plan.rows.target == 32);
    REQUIRE(plan.rows.first >= -4);
    REQUIRE(plan.rows.first <= 4);
    positions.emplace(plan.rows.first, plan.columns.first);
    mirrored += plan.columns.mirror ? 1 : 0;
  }
  CHECK(positions.size() == 81);
  CHECK(std::abs(mirrored - 1000) < 120);  // five deviations
}

TEST_CASE("inception crops keep to area 5-100 % and aspect 0.75-1.33, up to rounding") {
  double smallest = 1.0;
  double largest = 0.0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    RandomStream random(random_key(seed));
    const CropPlan plan = plan_training_crop(Augment::inception, {375, 500}, 299, random);
    const double area = static_cast<double>(plan.rows.extent * plan.columns.extent) / static_cast<double>(375 * 500);
    const double aspect = static_cast<double>(plan.columns.extent) / static_cast<double>(plan.rows.extent);
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
    REQUIRE(aspect > 0.73);
    REQUIRE(aspect < 1.36);
  }
  CHECK(smallest > 0.048);
  CHECK(smallest < 0.1);
  CHECK(largest > 0.9);
}

TEST_CASE("an image in which no aspect fits is taken whole by inception, cut to the nearest aspect by torchvision") {
  RandomStream random(1);
  const CropPlan inception = plan_training_crop(Augment::inception, {1, 2000}, 299, random);
  CHECK(inception.columns.extent == 2000);
  const CropPlan torchvision = plan_training_crop(Augment::torchvision, {30, 2000}, 299, random);
  CHECK(torchvision.rows.extent == 30);
  CHECK(torchvision.columns.extent == 40);
  CHECK(torchvision.columns.begin == 980);
}

TEST_CASE("evaluation crops: the numbers of each recipe") {
  const CropPlan inception = plan_evaluation_crop(Augment::inception, {400, 800}, 299);
  CHECK(inception.rows == AxisMap{.begin = 25, .extent = 350, .target = 299});
  CHECK(inception.columns == AxisMap{.begin = 50, .extent = 700, .target = 299});

  const CropPlan torchvision = plan_evaluation_crop(Augment::torchvision, {400, 800}, 299);
  CHECK(torchvision.rows == AxisMap{.extent = 400, .target = 342, .first = 22});
  CHECK(torchvision.columns == AxisMap{.extent = 800, .target = 684, .first = 192});

  // TensorFlow's central_crop of 0.875: 375 x 500 begins at (23, 31) and has 329 x 438 pixels.
  const CropPlan uneven = plan_evaluation_crop(Augment::inception, {375, 500}, 299);
  CHECK(uneven.rows == AxisMap{.begin = 23, .extent = 329, .target = 299});
  CHECK(uneven.columns == AxisMap{.begin = 31, .extent = 438, .target = 299});
  CHECK(plan_evaluation_crop(Augment::inception, {1, 15}, 299).columns == AxisMap{.extent = 15, .target = 299});

  // torchvision's CenterCrop(299) rounds 21.5 and 78.5 to even, and its Resize(342) cuts 402.35 to 402.
  const CropPlan cut = plan_evaluation_crop(Augment::torchvision, {375, 500}, 299);
  CHECK(cut.rows == AxisMap{.extent = 375, .target = 342, .first = 22});
  CHECK(cut.columns == AxisMap{.extent = 500, .target = 456, .first = 78});
  CHECK(plan_evaluation_crop(Augment::torchvision, {425, 500}, 299).columns ==
        AxisMap{.extent = 500, .target = 402, .first = 52});  // 51.5

  const CropPlan crop_flip = plan_evaluation_crop(Augment::crop_flip, {64, 32}, 32);
  CHECK(crop_flip.rows == AxisMap{.extent = 64, .target = 64, .first = 16});
  CHECK(crop_flip.columns == AxisMap{.extent = 32, .target = 32});

  CHECK(plan_evaluation_crop(Augment::none, {3, 9}, 4).columns == AxisMap{.extent = 9, .target = 4});
}
