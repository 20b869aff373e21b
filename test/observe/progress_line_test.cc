#include "lockstep/observe/progress_line.h"

#include <limits>

#include "test/catch.h"

using namespace lockstep;

namespace {

const ProgressRow kRow{.step = 110,
                       .total_steps = 1000,
                       .epoch = 1.5,
                       .loss = 0.8512,
                       .learning_rate = 0.045,
                       .examples_per_second = 354.26,
                       .seconds_per_step = 0.3612,
                       .data_seconds = 0.0011,
                       .compute_seconds = 0.3402,
                       .reduce_seconds = 0.0181,
                       .save_seconds = 0.0001};

}  // namespace

TEST_CASE("the log line is the one that scripts parse") {
  ProgressRow row = kRow;
  CHECK(training_line("2026-11-27 21:43:10.123456", row) ==
        "2026-11-27 21:43:10.123456: step 110, loss = 0.85 (354.3 examples/sec; 0.361 sec/batch) "
        "[data 0.001 compute 0.340 reduce 0.018 save 0.000]");
  row.slowest_rank = "3@node7";
  row.slowest_lag_seconds = 0.0123;
  CHECK(training_line("now", row) ==
        "now: step 110, loss = 0.85 (354.3 examples/sec; 0.361 sec/batch) "
        "[data 0.001 compute 0.340 reduce 0.018 save 0.000; slowest rank 3@node7 +0.012]");
}

TEST_CASE("an interval without a finite loss says so") {
  ProgressRow row = kRow;
  row.loss = std::numeric_limits<double>::quiet_NaN();
  CHECK_THAT(training_line("now", row), ContainsSubstring("step 110, loss = none ("));
  CHECK_THAT(progress_bar(row, 80), ContainsSubstring("loss none ETA"));
}

TEST_CASE("an interval that took no time has no rate") {
  ProgressRow row = kRow;
  row.examples_per_second = std::numeric_limits<double>::quiet_NaN();
  CHECK_THAT(training_line("now", row), ContainsSubstring("(- examples/sec; "));
  CHECK_THAT(progress_bar(row, 80), ContainsSubstring(" - examples/sec loss"));
}

TEST_CASE("the bar grows with the steps done and says how long it will take") {
  ProgressRow row = kRow;
  row.step = 500;
  CHECK(progress_bar(row, 80) == "step 500/1000 [==========>          ] 354.3 examples/sec loss 0.851 ETA 0:03:00");
  row.step = 0;
  CHECK_THAT(progress_bar(row, 80), ContainsSubstring("[>") && ContainsSubstring("ETA 0:06:01"));
  row.step = 1000;
  CHECK_THAT(progress_bar(row, 80), ContainsSubstring("=] 354.3") && ContainsSubstring("ETA 0:00:00"));
}

TEST_CASE("a colored bar is the plain one with what is done in green") {
  for (const int width : {20, 80, 140}) {
    INFO(width);
    std::string bar = progress_bar(kRow, width, true);
    if (width > 60) CHECK_THAT(bar, ContainsSubstring("[\x1b[32m=") && ContainsSubstring(">\x1b[0m "));
    for (const std::string code : {"\x1b[32m", "\x1b[0m"}) {
      if (const size_t at = bar.find(code); at != std::string::npos) bar.erase(at, code.size());
    }
    CHECK(bar == progress_bar(kRow, width));
  }
}

TEST_CASE("a wide bar says where the time goes") {
  CHECK_THAT(progress_bar(kRow, 140),
             ContainsSubstring("loss 0.851 ETA 0:05:21 [data 0 compute 95 reduce 5 save 0 %]"));
  CHECK_THAT(progress_bar(kRow, 90), !ContainsSubstring("data"));
}

TEST_CASE("the bar never fills the last column, and without room there are numbers alone") {
  for (int width = 0; width < 120; ++width) {
    INFO(width);
    const std::string bar = progress_bar(kRow, width);
    CHECK(static_cast<int>(bar.size()) <= std::max(0, width - 1));
    if (width > 80) CHECK(static_cast<int>(bar.size()) == width - 1);
  }
  CHECK(progress_bar(kRow, 20) == "step 110/1000  354.");
}
