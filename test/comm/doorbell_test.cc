#include "comm/transport/doorbell.h"

#include <atomic>
#include <thread>

#include "lockstep/base/clock.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

constexpr std::chrono::seconds kLong{30};

}  // namespace

TEST_CASE("a ring before the sleep is not missed") {
  uint32_t word = 0;
  const Doorbell bell(word);
  const uint32_t seen = bell.rings();
  bell.ring();
  const double begin = monotonic_seconds();
  bell.wait(seen, kLong);
  CHECK(monotonic_seconds() - begin < 15);
  CHECK(bell.rings() == seen + 1);
}

TEST_CASE("a ring wakes a sleeping thread, at every turn") {
  uint32_t here = 0, there = 0;
  const Doorbell to(there), fro(here);
  constexpr uint32_t kTurns = 2000;
  std::atomic<uint32_t> heard = 0;
  const double begin = monotonic_seconds();
  std::thread other([&] {
    for (uint32_t turn = 0; turn < kTurns; ++turn) {
      while (to.rings() == turn) to.wait(turn, kLong);
      ++heard;
      fro.ring();
    }
  });
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    to.ring();
    while (fro.rings() == turn) fro.wait(turn, kLong);
  }
  other.join();
  CHECK(heard == kTurns);
  CHECK(monotonic_seconds() - begin < 15);  // not one of them slept to the end
}

TEST_CASE("a sleep without a ring ends by itself") {
  uint32_t word = 7;
  const Doorbell bell(word);
  const double begin = monotonic_seconds();
  bell.wait(7, std::chrono::milliseconds(20));
  CHECK(monotonic_seconds() - begin >= 0.019);
  CHECK(bell.rings() == 7);
}
