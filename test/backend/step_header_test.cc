#include "lockstep/backend/step_header.h"

#include <bit>

#include "backend/step_rules.h"

#include "test/catch.h"

using namespace lockstep;

namespace {

using Elements = std::array<float, kStepHeaderElements>;

}  // namespace

TEST_CASE("the header of all ranks is the element-wise sum of theirs, as the reduction forms it") {
  const StepHeader one{.samples = 32, .loss = 1.5F, .stop = 1};
  const StepHeader other{.samples = 30, .loss = 2.0F, .save = 1, .not_finite = 1};
  Elements sum = std::bit_cast<Elements>(one);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += std::bit_cast<Elements>(other)[i];
  const auto all = std::bit_cast<StepHeader>(sum);
  CHECK(all.samples == 62);
  CHECK(all.loss == 3.5F);
  CHECK(all.stop == 1);
  CHECK(all.save == 1);
  CHECK(all.not_finite == 1);
}

TEST_CASE("counts stay exact where float32 alone has no room: 300 ranks of 100,001 samples") {
  const StepControl control{.samples = 100'001};
  const std::array<int32_t, 2> correct = {100'001, 99'999};
  std::array<float, kStepHeaderElements> sum{};
  for (int rank = 0; rank < 300; ++rank) {
    std::array<float, kStepHeaderElements> header{};
    StepOutcome own;
    fill_step_header(control, correct.data(), 1.0F, header.data(), &own);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += header[i];
  }
  std::array<float, kUpdateScalars> scalars{};
  UpdateState state;
  StepOutcome outcome;
  decide_update(DecideRule{}, DecideArgs<float>{sum.data(), 1, control, scalars.data(), &state, &outcome});
  CHECK(outcome.samples == 30'000'300);
  CHECK(outcome.correct1 == 30'000'300);
  CHECK(outcome.correct5 == 29'999'700);
}

TEST_CASE("an empty header is all zeros") { CHECK(std::bit_cast<Elements>(StepHeader{}) == Elements{}); }
