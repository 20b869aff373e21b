#include "lockstep/backend/step_header.h"

#include <bit>

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

TEST_CASE("an empty header is all zeros") { CHECK(std::bit_cast<Elements>(StepHeader{}) == Elements{}); }
