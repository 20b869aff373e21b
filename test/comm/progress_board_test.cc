#include "lockstep/comm/supervision/progress_board.h"

#include <fmt/format.h>

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
  // Merges a heartbeat of rank `rank` with this position.
  void receive_from(size_t rank, RankPosition position) {
    std::vector<RankPosition> positions(3);
    position.heartbeat = ++heartbeats;
    positions[rank] = position;
    merge(positions);
  }
  int64_t heartbeats = 0;
};

RankPosition at(RunPhase phase, int64_t step, int64_t reductions) {
  RankPosition position;
  position.phase = phase;
  position.step = step;
  position.started = {reductions, 0};
  return position;
}

}  // namespace

TEST_CASE("a rank that waits names those that have not come to the same reduction, and where they are") {
  Board board;
  board.receive_from(1, at(RunPhase::train, 120, 1));
  board.receive_from(2, at(RunPhase::train, 119, 0));
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

TEST_CASE("a rank without a heartbeat is missing, and one that waits elsewhere says for what") {
  Board board;
  RankPosition elsewhere = at(RunPhase::evaluate, 7, 0);
  elsewhere.waiting = true;
  std::copy_n("sum for the evaluation", 22, elsewhere.label.begin());
  board.receive_from(2, elsewhere);
  const ScopedWait waiting(&board, {CollectiveKind::reduction, board.begin(CollectiveKind::reduction, "a"), "a"});
  CHECK_THAT(board.describe_missing(), Catch::Matchers::StartsWith("rank 1@node6 has not arrived (no heartbeat for "));
  CHECK_THAT(board.describe_missing(),
             Catch::Matchers::EndsWith("rank 2@node7 has not arrived (in phase evaluation, step 7, waits for "
                                       "'sum for the evaluation')"));
}

TEST_CASE("of a thousand missing ranks, three are described and the others folded") {
  ProgressBoard board;
  board.set_rank(0, 1024);
  std::vector<std::string> hosts(1024);
  for (size_t r = 0; r < hosts.size(); ++r) hosts[r] = fmt::format("node{:02}", r / 64 + 1);
  board.set_hosts(std::move(hosts));
  const ScopedWait waiting(&board, {CollectiveKind::exchange, board.begin(CollectiveKind::exchange, "a"), "a"});
  CHECK_THAT(board.describe_missing(), ContainsSubstring("rank 3@node01 has not arrived"));
  CHECK_THAT(board.describe_missing(), Catch::Matchers::EndsWith("nor have ranks 4-1023 on node[01-16]"));
}

TEST_CASE("when all ranks have arrived, the message names the network or a silent rank") {
  Board board;
  board.receive_from(1, at(RunPhase::train, 120, 1));
  board.receive_from(2, at(RunPhase::train, 120, 1));
  const ScopedWait waiting(&board, {CollectiveKind::reduction, board.begin(CollectiveKind::reduction, "a"), "a"});
  CHECK_THAT(board.describe_missing(), Catch::Matchers::StartsWith("all have arrived, and yet it does not end"));
}

TEST_CASE("the network is named when nothing is heard from another host") {
  Board board;
  board.receive_from(1, at(RunPhase::train, 120, 1));
  board.receive_from(2, at(RunPhase::train, 120, 0));
  const ScopedWait waiting(&board, {CollectiveKind::reduction, board.begin(CollectiveKind::reduction, "a"), "a"});
  CHECK_THAT(board.describe_missing(), !ContainsSubstring("network"));
  std::this_thread::sleep_for(std::chrono::milliseconds(3200));
  board.receive_from(1, at(RunPhase::train, 120, 1));
  CHECK_THAT(board.describe_missing(),
             Catch::Matchers::EndsWith("; nothing is heard from node7: look at the network between node6 and node7"));
}

TEST_CASE("an old position does not replace a newer one, and other ranks cannot change this rank's own") {
  Board board;
  std::vector<RankPosition> positions(3);
  positions[0] = at(RunPhase::save, 1, 99);
  positions[0].heartbeat = 1000;
  positions[1] = at(RunPhase::train, 5, 5);
  positions[1].heartbeat = 5;
  board.merge(positions);
  positions[1] = at(RunPhase::train, 4, 4);
  positions[1].heartbeat = 4;
  board.merge(positions);
  const std::vector<RankPosition> known = board.snapshot(false);
  CHECK(known[0].step == 120);
  CHECK(known[0].heartbeat == 1);
  CHECK(known[1].step == 5);
}

TEST_CASE("the lowest rank that waits and is alive is the reporter") {
  ProgressBoard board;
  board.set_rank(1, 3);
  CHECK(board.is_reporter(5));
  const ScopedWait waiting(&board, {CollectiveKind::exchange, board.begin(CollectiveKind::exchange, "a"), "a"});
  CHECK(board.is_reporter(5));  // no heartbeat of rank 0 has arrived
  CHECK(board.alive_below() == 0);
  std::vector<RankPosition> positions(3);
  positions[0].heartbeat = 1;
  board.merge(positions);
  CHECK(board.is_reporter(5));  // rank 0 is the one that is missing
  CHECK(board.alive_below() == 1);
  positions[0].heartbeat = 2;
  positions[0].waiting = true;
  positions[0].started = {0, 1};
  board.merge(positions);
  CHECK_FALSE(board.is_reporter(5));
}

TEST_CASE("of the ranks that hang without waiting the lowest reports and names the others") {
  ProgressBoard board;
  board.set_rank(1, 4);
  board.set_hosts({"node6", "node6", "node7", "node7"});
  CHECK(board.others_without_progress(5).empty());
  std::vector<RankPosition> positions(4);
  for (RankPosition& position : positions) position = {.heartbeat = 1, .quiet_seconds = 6};
  positions[0].quiet_seconds = 4;
  positions[3].waiting = true;
  board.merge(positions);
  CHECK(board.is_reporter(5));  // rank 0 makes progress
  CHECK(board.others_without_progress(5) == "; no progress either on rank 2@node7");
  positions[0] = {.heartbeat = 2, .quiet_seconds = 6};
  board.merge(positions);
  CHECK_FALSE(board.is_reporter(5));
  positions[0] = {.heartbeat = 3, .quiet_seconds = 0};
  board.merge(positions);
  CHECK(board.is_reporter(5));
  const ScopedWait waiting(&board, {CollectiveKind::exchange, board.begin(CollectiveKind::exchange, "a"), "a"});
  CHECK(board.others_without_progress(5).empty());
}

TEST_CASE("a signal handler gets the same position as messages, cut to fit") {
  Board board;
  CHECK(board.position() == "training, step 120");
  std::array<char, 32> text{};
  board.write_position(text);
  CHECK(std::string(text.data()) == "training, step 120");
  std::array<char, 8> short_text{};
  board.write_position(short_text);
  CHECK(std::string(short_text.data()).substr(0, 7) == "trainin");
}

TEST_CASE("the report has a line a rank and the last events in order") {
  Board board;
  board.note("a warning");
  board.progress(RunPhase::evaluate, 3);
  const std::string report = board.report();
  CHECK_THAT(report, Catch::Matchers::StartsWith("rank 0@node6, process "));
  CHECK_THAT(report, ContainsSubstring("rank 2@node7") && ContainsSubstring("no heartbeat yet"));
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

TEST_CASE("time during which the process was suspended does not count") {
  Board board;
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(board.own().quiet_seconds >= 0.25F);
  board.discount(0.3);
  CHECK(board.own().quiet_seconds < 0.25F);
}
