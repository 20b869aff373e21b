#include "lockstep/observe/reporter.h"

#include <chrono>
#include <thread>

#include "lockstep/base/counted.h"
#include "lockstep/config/load.h"
#include "test/catch.h"
#include "test/train/json_rows.h"
#include "test/train/log_capture.h"
#include "test/train/world.h"

using namespace lockstep;
using testing::world;

namespace {

// A reporter on every rank and what rank 0's wrote.
struct Reporting {
  SharedDirectory directory;
  LogCapture log;
  Reporter reporter{world(), {.every_steps = 5, .jsonl = directory / "metrics.jsonl"}};
  ReporterUnderTest under_test{reporter};

  // Rank 0's only row; null elsewhere.
  nlohmann::json row() const {
    if (!world().is_root()) return {};
    const auto rows = json_rows(directory / "metrics.jsonl");
    return rows.size() == 1 ? rows[0] : nlohmann::json{};
  }
};

}  // namespace

TEST_CASE("the first row says what runs, and every row when it was written") {
  const double before = wall_seconds() - 0.01;
  Reporting r;
  r.reporter.start(3, {.version = "1.2.3", .commit = "abc", .configuration = {}});
  const nlohmann::json row = r.row();
  if (!world().is_root()) return;
  const std::vector<std::string> hosts(static_cast<size_t>(world().size()), world().host());
  CHECK(row == nlohmann::json{{"kind", "start"},
                              {"step", 3},
                              {"schema", 1},
                              {"version", "1.2.3"},
                              {"commit", "abc"},
                              {"ranks", world().size()},
                              {"hosts", hosts},
                              {"configuration", to_toml(Config{})}});
  const auto whole = nlohmann::json::parse(read_text_file(r.directory / "metrics.jsonl", ExitCode::internal));
  CHECK(whole["time"].get<double>() >= before);
  CHECK(whole["time"].get<double>() <= wall_seconds() + 0.01);
}

TEST_CASE("lines are due every so many steps") {
  Reporting r;
  CHECK(r.reporter.due(5));
  CHECK(r.reporter.due(10));
  CHECK_FALSE(r.reporter.due(11));
}

TEST_CASE("an interval is reported in means a step and names the rank that the others wait for") {
  Reporting r;
  StepTimer timer;
  timer.enter(StepPart::compute);
  // The last rank computes while the others wait.
  const bool last = world().rank() == world().size() - 1;
  if (!last) timer.enter(StepPart::reduce);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  for (int step = 0; step < 5; ++step) timer.finish_step(8);
  r.reporter.interval(
      {.step = 5, .total_steps = 10, .epoch = 0.5, .loss = 1.25, .learning_rate = 0.01, .queue_depth = 1.5}, timer);
  const nlohmann::json row = r.row();
  if (!world().is_root()) return;
  CHECK(row["kind"] == "train");
  CHECK(row["step"] == 5);
  CHECK(row["epoch"] == 0.5);
  CHECK(row["loss"] == 1.25);
  CHECK(row["lr"] == 0.01);
  CHECK(row["queue_depth"] == 1.5);
  CHECK(row["seconds_per_step"].get<double>() == Approx(timer.total_seconds() / 5));
  CHECK(row["slowest_step_seconds"].get<double>() >= 0.1);  // the first step has all of the wait
  CHECK(row["examples_per_second"].get<double>() == Approx(40 / timer.total_seconds()));
  CHECK(row[last ? "compute_seconds" : "reduce_seconds"].get<double>() >= 0.02);
  CHECK_THAT(r.log.text(), ContainsSubstring(": step 5, loss = 1.25 ("));
  if (world().size() == 1) {
    CHECK_FALSE(row.contains("slowest_rank"));
  } else {
    CHECK(row["slowest_rank"] == fmt::format("{}@{}", world().size() - 1, world().host()));
    const nlohmann::json& own = row["own_seconds"];
    CHECK(own["max"].get<double>() >= 0.02);
    CHECK(own["min"].get<double>() < own["max"].get<double>());
    CHECK(own["median"].get<double>() >= own["min"].get<double>());
  }
}

TEST_CASE("a run that becomes slower says so once, with whose work the time goes into") {
  Reporting r;
  StepTotals totals;
  const auto window = [&](double compute, double reduce) {
    totals.steps += 5;
    totals.seconds[static_cast<size_t>(StepPart::compute)] += 5 * compute;
    totals.seconds[static_cast<size_t>(StepPart::reduce)] += 5 * reduce;
    REQUIRE(r.reporter.watch_due(totals.steps));
    r.reporter.watch_speed(totals.steps, totals, {});
    CHECK_FALSE(r.reporter.watch_due(totals.steps + 4));
  };
  const bool last = world().rank() == world().size() - 1;
  for (int i = 0; i < 4; ++i) window(0.1, 0.0);
  for (int i = 0; i < 6; ++i) last ? window(0.2, 0.0) : window(0.1, 0.1);
  const nlohmann::json row = r.row();
  if (!world().is_root()) return;
  CHECK(row["kind"] == "event");
  CHECK(row["event"] == "slower");
  CHECK(row["step"] == 35);
  const std::string where =
      world().size() > 1 ? fmt::format(" on rank {}@{}", world().size() - 1, world().host()) : std::string();
  CHECK(row["text"] == "step 35: a step takes 0.200 s, 0.100 s at best; 0.100 s more go into computing" + where);
  CHECK_THAT(r.log.text(), ContainsSubstring("warning: step 35: a step takes 0.200 s"));
}

TEST_CASE("at the end a summary says where the time of the run went") {
  Reporting r;
  StepTimer timer;
  timer.enter(StepPart::compute);
  for (int step = 0; step < 5; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    timer.finish_step(8);
  }
  r.reporter.interval({.step = 5}, timer);
  r.reporter.close(30);
  if (!world().is_root()) return;
  const auto rows = json_rows(r.directory / "metrics.jsonl");
  REQUIRE(rows.size() == 3);
  CHECK(rows[1]["event"] == "summary");
  CHECK(rows[1]["step"] == 5);
  CHECK_THAT(r.log.text(), ContainsSubstring("\n3 steps in a row took "));
  CHECK_THAT(r.log.text(), ContainsSubstring("of the ranks' time went into data 0.0 %, compute 100.0 %"));
}

TEST_CASE("an evaluation is one line and one row for each kind of weights") {
  Reporting r;
  const EvaluationResult results[] = {{.weights = Weights::raw, .examples = 40, .top1 = 10, .top5 = 30, .loss = 1.5},
                                      {.weights = Weights::average, .examples = 40, .top1 = 20, .top5 = 40, .loss = 1}};
  r.reporter.evaluation(7, 2.5, results);
  if (!world().is_root()) return;
  const auto rows = json_rows(r.directory / "metrics.jsonl");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == nlohmann::json{{"kind", "eval"},
                                  {"step", 7},
                                  {"epoch", 2.5},
                                  {"weights", "raw"},
                                  {"top1", 0.25},
                                  {"top5", 0.75},
                                  {"loss", 1.5},
                                  {"examples", 40}});
  CHECK(rows[1]["weights"] == "ema");
  CHECK(rows[1]["top1"] == 0.5);
  CHECK_THAT(r.log.text(), ContainsSubstring("evaluation at step 7 (raw weights): top-1 25.00 % (10/40), "
                                             "top-5 75.00 % (30/40), loss 1.5000"));
}

TEST_CASE("a checkpoint that was written is a row, one that failed an event") {
  Reporting r;
  r.reporter.checkpoint({.step = 3, .path = "a.h5", .error = Error(ExitCode::checkpoint, "disk full")});
  r.reporter.checkpoint(
      {.step = 4, .path = "b.h5", .bytes = 12, .snapshot_seconds = 0.5, .write_seconds = 1.5, .cpu_seconds = 0.25});
  if (!world().is_root()) return;
  const auto rows = json_rows(r.directory / "metrics.jsonl");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == nlohmann::json{{"kind", "event"}, {"step", 3}, {"event", "save failed"}, {"text", "disk full"}});
  CHECK(rows[1] == nlohmann::json{{"kind", "checkpoint"},
                                  {"step", 4},
                                  {"path", "b.h5"},
                                  {"bytes", 12},
                                  {"snapshot_seconds", 0.5},
                                  {"write_seconds", 1.5},
                                  {"cpu_seconds", 0.25}});
}

TEST_CASE("bad records of all ranks are listed together, with a total") {
  Reporting r;
  const std::vector<BadRecordNote> mine = {
      {.index = 4, .message = "record 4: torn", .times = 1},
      {.index = 10 + world().rank(), .message = "record x: torn \xFF", .times = 2}};
  r.reporter.bad_records(9, {"data.train", {.files = 1, .bytes = 37}}, mine);
  const nlohmann::json row = r.row();
  if (!world().is_root()) return;
  const int ranks = world().size();
  CHECK(row["kind"] == "event");
  CHECK(row["step"] == 9);
  CHECK(row["event"] == "bad_records");
  CHECK(row["text"] == fmt::format("bad records of data.train skipped: {}, met {} times in all; besides, 1 file could "
                                   "not be read to the end: 37 bytes of records are left out",
                                   1 + ranks, 3 * ranks));
  REQUIRE(row["records"].size() == static_cast<size_t>(1 + ranks));
  CHECK(row["records"][0] == nlohmann::json{{"index", 4}, {"times", ranks}, {"message", "record 4: torn"}});
  CHECK_THAT(r.log.text(),
             ContainsSubstring(fmt::format("bad record, met {}: record 4: torn\n", counted_times(ranks))));
}

TEST_CASE("events are rows, with bytes that are no UTF-8 replaced") {
  Reporting r;
  r.reporter.event(3, "resumed", "/data/\xFF.h5");
  const nlohmann::json row = r.row();
  if (!world().is_root()) return;
  CHECK(row == nlohmann::json{{"kind", "event"}, {"step", 3}, {"event", "resumed"}, {"text", "/data/\uFFFD.h5"}});
}
