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

const std::vector<RankTimes> kSteady = ranks_with(0, StepPart::reduce, 0.0);

// What is told over so many windows.
std::vector<Slowdown> told(SlowdownWatch& watch, int windows, const std::vector<RankTimes>& ranks) {
  std::vector<Slowdown> found;
  for (int i = 0; i < windows; ++i) {
    if (const auto slowdown = watch.add(ranks, 5)) found.push_back(*slowdown);
  }
  return found;
}

}  // namespace

TEST_CASE("a lasting fall is told once, with the part and the rank that have grown") {
  for (const StepPart part : {StepPart::data, StepPart::compute, StepPart::save}) {
    for (int rank = 0; rank < 3; ++rank) {
      INFO("part " << static_cast<int>(part) << ", rank " << rank);
      SlowdownWatch watch;
      CHECK(told(watch, 6, kSteady).empty());
      CHECK(told(watch, 2, ranks_with(rank, part, 0.08)).empty());
      const auto found = told(watch, 1, ranks_with(rank, part, 0.08));
      REQUIRE(found.size() == 1);
      CHECK(found[0].part == part);
      CHECK(found[0].rank == rank);
      CHECK(found[0].added_seconds == Approx(0.08));
      CHECK(found[0].best_seconds == Approx(kStep));
      CHECK(found[0].seconds == Approx(kStep + 0.08));
      CHECK(told(watch, 20, ranks_with(rank, part, 0.08)).empty());
    }
  }
}

TEST_CASE("no rank is blamed for what slows several of them") {
  SlowdownWatch watch;
  told(watch, 6, kSteady);
  auto slow = kSteady;
  for (RankTimes& times : slow) times.part(StepPart::compute) += 0.07;
  slow[1].part(StepPart::compute) += 0.01;
  slow[0].part(StepPart::reduce) += 0.01;
  slow[2].part(StepPart::reduce) += 0.01;
  const auto found = told(watch, 4, slow);
  REQUIRE(found.size() == 1);
  CHECK(found[0].part == StepPart::compute);
  CHECK(found[0].rank == -1);
}

TEST_CASE("work that has grown in two parts is the rank's own, and the larger part is told") {
  SlowdownWatch watch;
  told(watch, 6, kSteady);
  auto slow = ranks_with(1, StepPart::data, 0.045);
  slow[1].part(StepPart::compute) += 0.035;
  slow[0].part(StepPart::reduce) += 0.035;
  slow[2].part(StepPart::reduce) += 0.035;
  const auto found = told(watch, 4, slow);
  REQUIRE(found.size() == 1);
  CHECK(found[0].part == StepPart::data);
  CHECK(found[0].rank == 1);
  CHECK(found[0].added_seconds == Approx(0.045));
}

TEST_CASE("a network that is slow for all is told as the reduction, of no rank") {
  SlowdownWatch watch;
  told(watch, 6, kSteady);
  auto slow = ranks_with(0, StepPart::reduce, 0.08);
  slow[0].waited_for += 0.02;
  slow[1].waited_for -= 0.02;
  const auto found = told(watch, 4, slow);
  REQUIRE(found.size() == 1);
  CHECK(found[0].part == StepPart::reduce);
  CHECK(found[0].rank == -1);
  CHECK(found[0].added_seconds == Approx(0.08));
}

TEST_CASE("the rank for which the others wait alone is named where no work has grown") {
  for (int rank = 0; rank < 3; ++rank) {
    SlowdownWatch watch;
    told(watch, 6, kSteady);
    auto slow = ranks_with(0, StepPart::reduce, 0.08);
    for (int r = 0; r < 3; ++r) slow[static_cast<size_t>(r)].waited_for += r == rank ? 0.05 : -0.025;
    const auto found = told(watch, 4, slow);
    REQUIRE(found.size() == 1);
    CHECK(found[0].part == StepPart::reduce);
    CHECK(found[0].rank == rank);
    CHECK(found[0].added_seconds == Approx(0.08));
  }
}

TEST_CASE("two ranks for which others wait are both in it, and none is named") {
  SlowdownWatch watch;
  told(watch, 6, kSteady);
  auto slow = ranks_with(0, StepPart::reduce, 0.08);
  slow[0].waited_for += 0.06;
  slow[1].waited_for += 0.05;
  slow[2].waited_for -= 0.11;
  const auto found = told(watch, 4, slow);
  REQUIRE(found.size() == 1);
  CHECK(found[0].rank == -1);
}

TEST_CASE("a wait that a rank's own work explains does not count against its link") {
  // Rank 1 computes 0.035 s longer, less than half of the fall, and all sums take 0.045 s longer.
  SlowdownWatch watch;
  told(watch, 6, kSteady);
  auto slow = ranks_with(1, StepPart::compute, 0.035);
  for (RankTimes& times : slow) times.part(StepPart::reduce) += 0.045;
  slow[1].waited_for += 0.045;
  const auto found = told(watch, 4, slow);
  REQUIRE(found.size() == 1);
  CHECK(found[0].part == StepPart::reduce);
  CHECK(found[0].rank == -1);
}

TEST_CASE("a rank is blamed for the waits of the others, less its own, in the mean over the others") {
  std::vector<RankTimes> ranks(4);
  attribute_waits(ranks, std::vector<StragglerWait>{{2, 0.3}, {2, 0.6}, {1, 0.15}, {}});
  CHECK(ranks[0].waited_for == Approx(-0.1));
  CHECK(ranks[1].waited_for == Approx(0.05 - 0.2));
  CHECK(ranks[2].waited_for == Approx(0.3 - 0.05));
  CHECK(ranks[3].waited_for == 0);
}

TEST_CASE("of two ranks none is blamed for a wait: it looks alike from both ends") {
  std::vector<RankTimes> ranks(2);
  attribute_waits(ranks, std::vector<StragglerWait>{{1, 0.3}, {0, 0.1}});
  CHECK(ranks[0].waited_for == 0);
  CHECK(ranks[1].waited_for == 0);
}

TEST_CASE("a steady run, a small fall and a short one are not told") {
  SlowdownWatch watch;
  CHECK(told(watch, 100, kSteady).empty());
  CHECK(told(watch, 20, ranks_with(1, StepPart::data, 0.03)).empty());
  CHECK(told(watch, 6, kSteady).empty());
  CHECK(told(watch, 2, ranks_with(1, StepPart::data, 0.2)).empty());
  CHECK(told(watch, 10, kSteady).empty());
}

TEST_CASE("a second fall is told after the run has recovered") {
  SlowdownWatch watch;
  told(watch, 6, kSteady);
  CHECK(told(watch, 6, ranks_with(1, StepPart::data, 0.2)).size() == 1);
  CHECK(told(watch, 6, kSteady).empty());
  CHECK(told(watch, 6, ranks_with(2, StepPart::compute, 0.2)).size() == 1);
}

TEST_CASE("a fall is told within twenty steps, wherever between two looks it begins") {
  for (int before = 0; before < 5; ++before) {
    INFO(before << " steps at the old rate in the first slow look");
    SlowdownWatch watch;
    told(watch, 6, kSteady);
    const std::vector<RankTimes> slow = ranks_with(2, StepPart::compute, 0.08);
    std::vector<RankTimes> mixed(3);
    for (size_t rank = 0; rank < 3; ++rank) {
      mixed[rank].add(kSteady[rank], before / 5.0);
      mixed[rank].add(slow[rank], 1 - before / 5.0);
    }
    told(watch, 1, mixed);
    CHECK(told(watch, before == 0 ? 2 : 3, slow).size() == 1);  // at most 4 + 15 steps after it began
  }
}

TEST_CASE("short steps are judged over a fifth of a second") {
  const auto times = [](double compute) {
    std::vector<RankTimes> ranks(3);
    for (RankTimes& rank : ranks) rank.part(StepPart::compute) = compute;
    return ranks;
  };
  SlowdownWatch watch;
  told(watch, 40, times(0.0101));
  CHECK(told(watch, 4, times(0.0202)).empty());  // 0.4 s: two windows
  CHECK(told(watch, 40, times(0.0101)).empty());
  CHECK(told(watch, 6, times(0.0202)).size() == 1);
}

TEST_CASE("times are exchanged every five steps, more rarely where steps are short") {
  CHECK(steps_between_checks(1) == 5);
  CHECK(steps_between_checks(0.01) == 5);
  CHECK(steps_between_checks(0.005) == 10);
  CHECK(steps_between_checks(0) == 1000);
}
