#include "lockstep/comm/supervision/progress_board.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "lockstep/base/activity.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

// The board of rank 0 of three, at step 120.
struct Board : ProgressBoard {
  Board() {
    set_rank(0, 3);
    set_hosts({"node6", "node6", "node7"});
    progress(RunPhase::train, 120);
  }
  // Rank `rank` has begun so many reductions.
  void hear_from(size_t rank, RankPosition position) {
    std::vector<RankPosition> news(3);
    position.beat = ++beats;
    news[rank] = position;
    merge(news);
  }
  int64_t beats = 0;
};

RankPosition at(RunPhase phase, int64_t step, int64_t reductions) {
  RankPosition position;
  position.phase = phase;
  position.step = step;
  position.begun = {reductions, 0};
  return position;
}

}  // namespace

TEST_CASE("a rank that waits names those that have not come to the same reduction, and where they are") {
  Board board;
  board.hear_from(1, at(RunPhase::train, 120, 1));
  board.hear_from(2, at(RunPhase::train, 119, 0));
  CHECK(board.describe_wait().empty());
  const int64_t number = board.begin(CollectiveKind::reduction, "step 120 bucket 3 of 4");
  CHECK(number == 1);
  const ScopedWait waiting(&board, {CollectiveKind::reduction, number, "step 120 bucket 3 of 4"});
  CHECK_THAT(board.describe_wait(),
             Catch::Matchers::StartsWith("'step 120 bucket 3 of 4': rank 2@node7 has not arrived (in phase "
                                         "training, step 119, alive, no progress for "));
  CHECK_THAT(board.describe_wait(), !ContainsSubstring("rank 1"));
}

TEST_CASE("a rank that uses files names them, unless it waits for other ranks") {
  Board board;
  {
    const ScopedFileUse files(&board, "runs/a");
    CHECK(board.describe_wait() == "the files in 'runs/a'");
    const ScopedWait waiting(&board, {CollectiveKind::reduction, board.begin(CollectiveKind::reduction, "a"), "a"});
    CHECK_THAT(board.describe_wait(), Catch::Matchers::StartsWith("'a': "));
  }
  CHECK(board.describe_wait().empty());
  const ScopedFileUse nowhere(nullptr, "runs/a");
}

TEST_CASE("a rank that was never heard of is late, and one that waits elsewhere says for what") {
  Board board;
  RankPosition elsewhere = at(RunPhase::evaluate, 7, 0);
  elsewhere.waiting = true;
  std::copy_n("sum for the evaluation", 22, elsewhere.at.begin());
  board.hear_from(2, elsewhere);
  const ScopedWait waiting(&board, {CollectiveKind::reduction, board.begin(CollectiveKind::reduction, "a"), "a"});
  CHECK_THAT(board.describe_missing(), Catch::Matchers::StartsWith("rank 1@node6 has not arrived (not heard of for "));
  CHECK_THAT(board.describe_missing(),
             Catch::Matchers::EndsWith("rank 2@node7 has not arrived (in phase evaluation, step 7, waits for "
                                       "'sum for the evaluation')"));
}

TEST_CASE("when all have arrived it is the network, or a rank that fell silent") {
  Board board;
  board.hear_from(1, at(RunPhase::train, 120, 1));
  board.hear_from(2, at(RunPhase::train, 120, 1));
  const ScopedWait waiting(&board, {CollectiveKind::reduction, board.begin(CollectiveKind::reduction, "a"), "a"});
  CHECK_THAT(board.describe_missing(), Catch::Matchers::StartsWith("all have arrived, and yet it does not end"));
}

TEST_CASE("old news do not replace newer ones, nor anybody's word the own position") {
  Board board;
  std::vector<RankPosition> news(3);
  news[0] = at(RunPhase::save, 1, 99);
  news[0].beat = 1000;
  news[1] = at(RunPhase::train, 5, 5);
  news[1].beat = 5;
  board.merge(news);
  news[1] = at(RunPhase::train, 4, 4);
  news[1].beat = 4;
  board.merge(news);
  const std::vector<RankPosition> known = board.snapshot(false);
  CHECK(known[0].step == 120);
  CHECK(known[0].beat == 1);
  CHECK(known[1].step == 5);
}

TEST_CASE("the lowest of the ranks that wait and live speaks for them") {
  ProgressBoard board;
  board.set_rank(1, 3);
  CHECK(board.is_reporter());
  const ScopedWait waiting(&board, {CollectiveKind::exchange, board.begin(CollectiveKind::exchange, "a"), "a"});
  CHECK(board.is_reporter());  // rank 0 was never heard of
  CHECK(board.alive_below() == 0);
  std::vector<RankPosition> news(3);
  news[0].beat = 1;
  board.merge(news);
  CHECK(board.is_reporter());  // rank 0 is the one that is missing
  CHECK(board.alive_below() == 1);
  news[0].beat = 2;
  news[0].waiting = true;
  news[0].begun = {0, 1};
  board.merge(news);
  CHECK_FALSE(board.is_reporter());
}

TEST_CASE("the place of a rank is the same in messages and for a signal handler, cut to what fits") {
  Board board;
  CHECK(board.position() == "training, step 120");
  std::array<char, 32> text{};
  board.write_position(text);
  CHECK(std::string(text.data()) == "training, step 120");
  std::array<char, 8> little{};
  board.write_position(little);
  CHECK(std::string(little.data()).substr(0, 7) == "trainin");
}

TEST_CASE("the report has a line a rank and the last events in order") {
  Board board;
  board.note("a warning");
  board.progress(RunPhase::evaluate, 3);
  const std::string report = board.report();
  CHECK_THAT(report, Catch::Matchers::StartsWith("rank 0@node6, process "));
  CHECK_THAT(report, ContainsSubstring("rank 2@node7") && ContainsSubstring("never heard of"));
  const size_t first = report.find("training, step 120"), second = report.find("a warning"),
               third = report.rfind("evaluation, step 3");
  CHECK((first < second && second < third && third != std::string::npos));
}

TEST_CASE("the report says what the threads of this rank are busy with, as long as they are") {
  Board board;
  Activity activity("loader thread");
  CHECK_THAT(board.report(), !ContainsSubstring("busy with"));
  activity.begin([] { return std::string("a.tfrecord record 7"); });
  CHECK_THAT(board.report(), ContainsSubstring("busy with:\n  loader thread: a.tfrecord record 7, for "));
}

TEST_CASE("time in which the process stood still does not count") {
  Board board;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(board.own().quiet_seconds >= 0.25F);
  board.discount(0.3);
  CHECK(board.own().quiet_seconds < 0.25F);
}
