#include "lockstep/comm/supervision/watchdog.h"

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/activity.h"
#include "test/catch.h"

using namespace lockstep;

TEST_CASE("a rank without progress is warned about once, then ended, with phase and step named") {
  std::promise<std::string> ended;
  std::atomic<int> warnings{0};
  WatchdogOptions options;
  options.limits[static_cast<size_t>(RunPhase::train)] = {0.2, 0.6};
  options.warn = [&](const std::string& text) {
    ++warnings;
    CHECK_THAT(text, ContainsSubstring("training"));
    CHECK_THAT(text, ContainsSubstring("step 7"));
  };
  options.abort = [&, done = false](const std::string& text) mutable {
    if (!done) ended.set_value(text);
    done = true;
  };
  Activity activity("loader thread");
  activity.begin([] { return std::string("a.tfrecord record 7"); });
  Watchdog watchdog(options);
  watchdog.progress(RunPhase::train, 7);
  auto text = ended.get_future();
  REQUIRE(text.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  CHECK_THAT(text.get(), ContainsSubstring("phase training, step 7; loader thread: a.tfrecord record 7, for "));
  CHECK(warnings == 1);
}

TEST_CASE("each phase has its own limit, and a limit of 0 never ends a run") {
  std::atomic<int> ends{0};
  WatchdogOptions options;
  options.limits[static_cast<size_t>(RunPhase::train)] = {0, 0.1};
  options.warn = [](const std::string&) {};
  options.abort = [&](const std::string&) { ++ends; };
  Watchdog watchdog(options);
  watchdog.progress(RunPhase::evaluate, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  CHECK(ends == 0);
}

TEST_CASE("a rank that hangs together with a lower one leaves the warning to it, until that one no longer hangs") {
  std::promise<std::string> warned;
  std::atomic<int> warnings{0};
  WatchdogOptions options;
  options.limits[static_cast<size_t>(RunPhase::train)] = {0.2, 0};
  options.warn = [&](const std::string& text) {
    if (++warnings == 1) warned.set_value(text);
  };
  options.abort = [](const std::string&) {};
  Watchdog watchdog(options);
  watchdog.board().set_rank(1, 2);
  watchdog.board().set_hosts({"node6", "node7"});
  std::vector<RankPosition> positions(2);
  positions[0] = {.heartbeat = 1, .quiet_seconds = 100};
  watchdog.board().merge(positions);
  watchdog.progress(RunPhase::train, 7);
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
  CHECK(warnings == 0);
  positions[0] = {.heartbeat = 2, .waiting = true};
  watchdog.board().merge(positions);
  auto text = warned.get_future();
  REQUIRE(text.wait_for(std::chrono::seconds(30)) == std::future_status::ready);
  CHECK_THAT(text.get(), ContainsSubstring("phase training, step 7"));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(warnings == 1);
}
