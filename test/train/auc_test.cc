#include "train/auc.h"

#include <cmath>

#include "lockstep/base/random.h"
#include "test/catch.h"

using namespace lockstep;

TEST_CASE("the area is the share of pairs in the right order") {
  CHECK(area_under_curve({{2, 3}, {0, 1}}) == 1.0);
  CHECK(area_under_curve({{0, 1}, {2, 3}}) == 0.0);
  CHECK(area_under_curve({{1, 1, 1}, {1, 1}}) == 0.5);
  CHECK(area_under_curve({{3, 1}, {2, 0}}) == 0.75);
  CHECK(area_under_curve({{0.5F}, {0.5F, 0.4F, 0.6F, 0.1F}}) == 2.5 / 4);
  const float infinity = INFINITY;
  CHECK(area_under_curve({{infinity}, {-infinity, infinity}}) == 0.75);
}

TEST_CASE("the area agrees with counting every pair, and order changes no bit") {
  RandomStream random(7);
  Scores scores;
  for (int i = 0; i < 300; ++i) {
    // Coarse scores, so that many are equal.
    const auto score = static_cast<float>(random.below(40));
    (i % 3 == 0 ? scores.positive : scores.negative).push_back(score + (i % 3 == 0 ? 5.0F : 0.0F));
  }
  double pairs = 0;
  for (const float p : scores.positive) {
    for (const float n : scores.negative) pairs += p > n ? 1 : p == n ? 0.5 : 0;
  }
  const double expected = pairs / static_cast<double>(scores.positive.size() * scores.negative.size());
  CHECK(area_under_curve(scores) == expected);
  const Scores reversed{{scores.positive.rbegin(), scores.positive.rend()},
                        {scores.negative.rbegin(), scores.negative.rend()}};
  CHECK(area_under_curve(reversed) == expected);
}

TEST_CASE("there is no area without both classes, nor with a score that is no number") {
  CHECK(std::isnan(area_under_curve({{1}, {}})));
  CHECK(std::isnan(area_under_curve({{}, {1}})));
  CHECK(std::isnan(area_under_curve({{1, NAN}, {0}})));
  CHECK(std::isnan(area_under_curve({{1}, {0, NAN}})));
}
