#include "lockstep/observe/slowdown.h"

#include "test/catch.h"

using namespace lockstep;

namespace {

constexpr double kStep = 0.1;

// Three ranks that compute for kStep a step; `rank` takes `added` longer in `part`, and the others wait for it.
std::vector<RankTimes> ranks_with(int rank, StepPart part, double added) {
  std::vector<RankTimes> ranks(3);
  for (int r = 0; r < 3; ++r) {
    RankTimes& times = ranks[static_cast<size_t>(r)];
    times.part(StepPart::compute) = kStep;
    times.part(r == rank ? part : StepPart::reduce) += added;
  }
  return ranks;
}

// Ranks whose all-reduce takes 0.08 s longer. Rank r waits for stragglers[r] alone, or for none if that is -1.
struct Wait {
  int straggler;
  double seconds;
};
std::vector<RankTimes> ranks_that_wait(const std::vector<Wait>& waits) {
  std::vector<RankTimes> ranks(waits.size());
  for (size_t r = 0; r < waits.size(); ++r) {
    ranks[r].part(StepPart::compute) = kStep;
    ranks[r].part(StepPart::reduce) = 0.08;
    ranks[r].straggler = waits[r].straggler;
    ranks[r].straggler_wait = waits[r].seconds;
  }
  return ranks;
}

const std::vector<RankTimes> kSteady = ranks_with(0, StepPart::reduce, 0.0);

// What is reported over so many windows.
std::vector<Slowdown> reported(SlowdownWatch& watch, int windows, const std::vector<RankTimes>& ranks) {
  std::vector<Slowdown> found;
  for (int i = 0; i < windows; ++i) {
    if (const auto slowdown = watch.add(ranks)) found.push_back(*slowdown);
  }
  return found;
}

}  // namespace

TEST_CASE("a lasting slowdown is reported once, with the part and the rank that have grown") {
  for (const StepPart part : {StepPart::data, StepPart::compute, StepPart::save}) {
    for (int rank = 0; rank < 3; ++rank) {
      INFO("part " << static_cast<int>(part) << ", rank " << rank);
      SlowdownWatch watch;
      CHECK(reported(watch, 6, kSteady).empty());
      CHECK(reported(watch, 2, ranks_with(rank, part, 0.08)).empty());
      const auto found = reported(watch, 1, ranks_with(rank, part, 0.08));
      REQUIRE(found.size() == 1);
      CHECK(found[0].part == part);
      CHECK(found[0].rank == rank);
      CHECK(found[0].added_seconds == Approx(0.08));
      CHECK(found[0].best_seconds == Approx(kStep));
      CHECK(found[0].seconds == Approx(kStep + 0.08));
      CHECK(reported(watch, 20, ranks_with(rank, part, 0.08)).empty());
    }
  }
}

TEST_CASE("no rank is named for what slows several of them") {
  SlowdownWatch watch;
  reported(watch, 6, kSteady);
  auto slow = kSteady;
  for (RankTimes& times : slow) times.part(StepPart::compute) += 0.07;
  slow[1].part(StepPart::compute) += 0.01;
  slow[0].part(StepPart::reduce) += 0.01;
  slow[2].part(StepPart::reduce) += 0.01;
  const auto found = reported(watch, 4, slow);
  REQUIRE(found.size() == 1);
  CHECK(found[0].part == StepPart::compute);
  CHECK(found[0].rank == -1);
}

TEST_CASE("work that has grown in two parts is the rank's own, and the larger part is reported") {
  SlowdownWatch watch;
  reported(watch, 6, kSteady);
  auto slow = ranks_with(1, StepPart::data, 0.045);
  slow[1].part(StepPart::compute) += 0.035;
  slow[0].part(StepPart::reduce) += 0.035;
  slow[2].part(StepPart::reduce) += 0.035;
  const auto found = reported(watch, 4, slow);
  REQUIRE(found.size() == 1);
  CHECK(found[0].part == StepPart::data);
  CHECK(found[0].rank == 1);
  CHECK(found[0].added_seconds == Approx(0.045));
}

TEST_CASE("a network that is slow for all is reported as the reduction, without a rank") {
  SlowdownWatch watch;
  reported(watch, 6, kSteady);
  const auto found = reported(watch, 4, ranks_that_wait({{-1, 0}, {0, 0.04}, {-1, 0}}));
  REQUIRE(found.size() == 1);
  CHECK(found[0].part == StepPart::reduce);
  CHECK(found[0].rank == -1);
  CHECK(found[0].added_seconds == Approx(0.08));
}

TEST_CASE("the rank for which the others wait is named if no rank's work has grown") {
  for (int rank = 0; rank < 3; ++rank) {
    SlowdownWatch watch;
    reported(watch, 6, kSteady);
    std::vector<Wait> waits(3, {rank, 0.05});
    waits[static_cast<size_t>(rank)] = {-1, 0};
    const auto found = reported(watch, 4, ranks_that_wait(waits));
    REQUIRE(found.size() == 1);
    CHECK(found[0].part == StepPart::reduce);
    CHECK(found[0].rank == rank);
    CHECK(found[0].added_seconds == Approx(0.08));
  }
}

TEST_CASE("no rank is named if the others wait for two") {
  SlowdownWatch watch;
  reported(watch, 6, std::vector<RankTimes>(4, kSteady[0]));
  const auto found = reported(watch, 4, ranks_that_wait({{-1, 0}, {-1, 0}, {0, 0.09}, {1, 0.08}}));
  REQUIRE(found.size() == 1);
  CHECK(found[0].rank == -1);
}

TEST_CASE("a wait that a rank's own work explains does not count against its link") {
  // Rank 1 computes 0.035 s longer, less than half of the slowdown, and every all-reduce takes 0.045 s longer.
  SlowdownWatch watch;
  reported(watch, 6, kSteady);
  auto slow = ranks_with(1, StepPart::compute, 0.035);
  for (RankTimes& times : slow) times.part(StepPart::reduce) += 0.045;
  for (const size_t other : {0, 2}) {
    slow[other].straggler = 1;
    slow[other].straggler_wait = 0.045;
  }
  const auto found = reported(watch, 4, slow);
  REQUIRE(found.size() == 1);
  CHECK(found[0].part == StepPart::reduce);
  CHECK(found[0].rank == -1);
}

TEST_CASE("a rank that waits as long for another is not named") {
  SlowdownWatch watch;
  reported(watch, 6, std::vector<RankTimes>(4, kSteady[0]));
  const auto found = reported(watch, 4, ranks_that_wait({{1, 0.07}, {2, 0.07}, {1, 0.07}, {-1, 0}}));
  REQUIRE(found.size() == 1);
  CHECK(found[0].rank == -1);  // without its own wait, rank 1 would have two thirds of 0.07 s
}

TEST_CASE("with two ranks none is named for a wait, which looks alike from both ends") {
  SlowdownWatch watch;
  reported(watch, 6, std::vector<RankTimes>(2, kSteady[0]));
  const auto found = reported(watch, 4, ranks_that_wait({{1, 0.07}, {-1, 0}}));
  REQUIRE(found.size() == 1);
  CHECK(found[0].part == StepPart::reduce);
  CHECK(found[0].rank == -1);
}

TEST_CASE("a steady run, a small slowdown and a short one are not reported") {
  SlowdownWatch watch;
  CHECK(reported(watch, 100, kSteady).empty());
  CHECK(reported(watch, 20, ranks_with(1, StepPart::data, 0.03)).empty());
  CHECK(reported(watch, 6, kSteady).empty());
  CHECK(reported(watch, 2, ranks_with(1, StepPart::data, 0.2)).empty());
  CHECK(reported(watch, 10, kSteady).empty());
}

TEST_CASE("a second slowdown is reported after the run has recovered") {
  SlowdownWatch watch;
  reported(watch, 6, kSteady);
  CHECK(reported(watch, 6, ranks_with(1, StepPart::data, 0.2)).size() == 1);
  CHECK(reported(watch, 6, kSteady).empty());
  CHECK(reported(watch, 6, ranks_with(2, StepPart::compute, 0.2)).size() == 1);
}

TEST_CASE("a slowdown is reported within twenty steps, wherever in a window it begins") {
  for (int before = 0; before < 5; ++before) {
    INFO(before << " steps at the old rate in the first slow window");
    SlowdownWatch watch;
    reported(watch, 6, kSteady);
    const std::vector<RankTimes> slow = ranks_with(2, StepPart::compute, 0.08);
    reported(watch, 1, ranks_with(2, StepPart::compute, 0.08 * (1 - before / 5.0)));
    CHECK(reported(watch, before == 0 ? 2 : 3, slow).size() == 1);  // at most 4 + 15 steps after it began
  }
}

TEST_CASE("what has been reported is what later windows are compared with") {
  SlowdownWatch watch;
  reported(watch, 6, kSteady);
  CHECK(reported(watch, 6, ranks_with(1, StepPart::data, 0.1)).size() == 1);
  const auto again = reported(watch, 6, ranks_with(1, StepPart::data, 0.3));
  REQUIRE(again.size() == 1);
  CHECK(again[0].best_seconds == Approx(0.2));
  CHECK(again[0].seconds == Approx(0.4));
}

TEST_CASE("a window has five steps, and takes at least a fifth of a second") {
  CHECK(window_steps(1) == 5);
  CHECK(window_steps(0.05) == 5);
  CHECK(window_steps(0.01) == 20);
  CHECK(window_steps(0) == 1000);
}
