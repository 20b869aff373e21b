#include "lockstep/train/gradient_accumulator.h"

#include <algorithm>

#include "test/catch.h"
#include "test/train/small_run.h"

using namespace lockstep;

TEST_CASE("each bucket gets the sum of all micro-batches, and the next step starts from zero") {
  const SmallRun run(small_config());
  const ModelState& state = run.model.state();
  const int64_t elements = state.gradient_elements(), cut = elements / 3;
  const std::vector<Bucket> buckets = {{.offset = 0, .count = cut, .ready = 5},
                                       {.offset = cut, .count = elements - cut}};
  GradientAccumulator accumulator(*run.backend, state, 3, buckets);
  CHECK(accumulator.active());
  auto* arena = state.gradients.as<float>();
  const auto fill = [&](float first) {
    for (int64_t i = 0; i < elements; ++i) arena[i] = first + static_cast<float>(i % 7);
  };
  for (const float step : {0.0F, 100.0F}) {
    fill(step + 1);
    accumulator.add(*run.stream, 0);
    fill(step + 2);
    accumulator.add(*run.stream, 1);
    fill(step + 3);
    accumulator.complete(*run.stream, 0);
    CHECK(arena[0] == 3 * step + 6);
    CHECK(arena[cut] == step + 3 + static_cast<float>(cut % 7));
    accumulator.complete(*run.stream, 1);
    for (const int64_t i : {cut - 1, cut, elements - 1}) CHECK(arena[i] == 3 * (step + 2 + static_cast<float>(i % 7)));
  }
}

TEST_CASE("one batch a step needs no sums") {
  const SmallRun run(small_config());
  const GradientAccumulator accumulator(*run.backend, run.model.state(), 1, {});
  CHECK_FALSE(accumulator.active());
}
