#include "lockstep/train/deadlines.h"

#include "test/catch.h"

using namespace lockstep;

namespace {

constexpr RunPhase kPhases[] = {RunPhase::start, RunPhase::scan, RunPhase::train, RunPhase::evaluate, RunPhase::save};

}  // namespace

TEST_CASE("phases without limits of their own have the general ones") {
  Config config;
  config.watchdog = {.warn_seconds = 7, .abort_seconds = 70};
  for (RunPhase phase : kPhases) {
    INFO(run_phase_name(phase));
    CHECK(phase_limits(config, phase).warn_seconds == 7);
    CHECK(phase_limits(config, phase).abort_seconds == 70);
    CHECK(wait_seconds(config, phase) == 70);
    CHECK(wait_limits(config)[static_cast<size_t>(phase)] == 70);
  }
}

TEST_CASE("a phase's own limits count for it alone") {
  Config config;
  config.watchdog = {.warn_seconds = 1,
                     .abort_seconds = 2,
                     .start_warn_seconds = 3,
                     .start_abort_seconds = 4,
                     .scan_warn_seconds = 5,
                     .scan_abort_seconds = 6,
                     .evaluate_warn_seconds = 7,
                     .evaluate_abort_seconds = 8,
                     .save_warn_seconds = 9,
                     .save_abort_seconds = 10};
  const auto limits = [&](RunPhase phase) {
    const PhaseLimits l = phase_limits(config, phase);
    return std::pair(l.warn_seconds, l.abort_seconds);
  };
  CHECK(limits(RunPhase::start) == std::pair(3.0, 4.0));
  CHECK(limits(RunPhase::scan) == std::pair(5.0, 6.0));
  CHECK(limits(RunPhase::train) == std::pair(1.0, 2.0));
  CHECK(limits(RunPhase::evaluate) == std::pair(7.0, 8.0));
  CHECK(limits(RunPhase::save) == std::pair(9.0, 10.0));
}

TEST_CASE("before the configuration is read, command line and environment of the process count") {
  const auto none = [](const char*) { return std::optional<std::string>(); };
  CHECK(configuration_before_start({}, none) == Config{});
  const std::vector<Assignment> overrides = {{"watchdog.start_warn_seconds", "3"},
                                             {"watchdog.abort_seconds", "x"},
                                             {"comm.watch_launcher", "false"},
                                             {"train.nonsense", "1"}};
  const auto environment = [](const char* name) {
    const std::string_view variable = name;
    return variable == "LOCKSTEP_WATCHDOG_WARN_SECONDS"         ? std::optional<std::string>("4")
           : variable == "LOCKSTEP_WATCHDOG_START_WARN_SECONDS" ? std::optional<std::string>("5")
           : variable == "LOCKSTEP_WATCHDOG_SAVE_WARN_SECONDS"  ? std::optional<std::string>("-1")
                                                                : std::nullopt;
  };
  Config expected;
  expected.watchdog.warn_seconds = 4;
  expected.watchdog.start_warn_seconds = 5;
  CHECK(configuration_before_start({}, environment) == expected);
  expected.watchdog.start_warn_seconds = 3;
  expected.comm.watch_launcher = false;
  CHECK(configuration_before_start(overrides, environment) == expected);
}

TEST_CASE("the watchdog gives waits between ranks time to end first, but there are none while MPI starts") {
  Config config;
  config.watchdog = {.warn_seconds = 1, .abort_seconds = 2};
  const WatchdogLimits limits = watchdog_limits(config);
  CHECK(limits[static_cast<size_t>(RunPhase::mpi)].abort_seconds == 2);
  CHECK(limits[static_cast<size_t>(RunPhase::config)].abort_seconds == 7);
  CHECK(limits[static_cast<size_t>(RunPhase::save)].abort_seconds == 7);
}

TEST_CASE("with the watchdog off nothing is limited") {
  Config config;
  config.watchdog.enabled = false;
  for (const PhaseLimits& limits : watchdog_limits(config)) {
    CHECK(limits.warn_seconds == 0);
    CHECK(limits.abort_seconds == 0);
  }
  CHECK(wait_seconds(config, RunPhase::train) > 1e7);
}

TEST_CASE("warning and end are chosen one by one") {
  Config config;
  config.watchdog = {.warn_seconds = 1, .abort_seconds = 2, .save_abort_seconds = 30};
  CHECK(phase_limits(config, RunPhase::save).warn_seconds == 1);
  CHECK(phase_limits(config, RunPhase::save).abort_seconds == 30);
}

TEST_CASE("a limit that is switched off still ends a wait some day") {
  Config config;
  config.watchdog.abort_seconds = 0;
  CHECK(phase_limits(config, RunPhase::train).abort_seconds == 0);
  CHECK(wait_seconds(config, RunPhase::train) == 365.0 * 24 * 3600);
}
