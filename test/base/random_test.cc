#include "lockstep/base/random.h"

#include <cmath>
#include <set>

#include "test/catch.h"

using namespace lockstep;

TEST_CASE("fnv1a64 and splitmix64 give their published values") {
  CHECK(fnv1a64("") == 0xcbf29ce484222325ULL);
  CHECK(fnv1a64("a") == 0xaf63dc4c8601ec8cULL);
  CHECK(splitmix64(0) == 0xe220a8397b1dcdafULL);  // first output of the reference program with seed 0
}

TEST_CASE("keys of different words differ") {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (uint64_t epoch = 0; epoch < 20; ++epoch) {
      for (uint64_t index = 0; index < 20; ++index) keys.insert(random_key(seed, epoch, index));
    }
  }
  CHECK(keys.size() == 8000);
}

TEST_CASE("uniform and normal streams have the moments they should") {
  RandomStream stream(random_key(1, 2));
  double sum = 0, squares = 0;
  uint64_t histogram[7] = {};
  constexpr int kDraws = 70000;
  for (int i = 0; i < kDraws; ++i) {
    const double z = stream.normal();
    sum += z;
    squares += z * z;
    ++histogram[stream.below(7)];
  }
  CHECK(std::abs(sum / kDraws) < 0.02);
  CHECK(squares / kDraws == Approx(1).margin(0.02));
  for (uint64_t count : histogram) CHECK(static_cast<double>(count) == Approx(kDraws / 7.0).epsilon(0.05));
}
