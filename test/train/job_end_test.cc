#include "lockstep/train/job_end.h"

#include <cmath>
#include <ctime>
#include <map>

#include "lockstep/base/error.h"
#include "test/catch.h"
#include "test/train/log_capture.h"

using namespace lockstep;

namespace {

EnvironmentLookup lookup(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string in_seconds(int seconds) { return std::to_string(std::time(nullptr) + seconds); }

}  // namespace

TEST_CASE("the end of the job is Lockstep's own variable, or else Slurm's, or never") {
  CHECK(std::isinf(JobEnd(lookup({})).seconds_left()));
  CHECK(std::isinf(JobEnd(lookup({{"LOCKSTEP_JOB_END", ""}})).seconds_left()));
  const double slurm = JobEnd(lookup({{"SLURM_JOB_END_TIME", in_seconds(100)}})).seconds_left();
  CHECK((slurm > 90 && slurm <= 101));
  const auto both = lookup({{"SLURM_JOB_END_TIME", in_seconds(100)}, {"LOCKSTEP_JOB_END", in_seconds(1000)}});
  CHECK(JobEnd(both).seconds_left() > 900);
}

TEST_CASE("an end that is no time is refused") {
  for (const char* text : {"soon", "12:00", "17e9x", "-5", "0", "nan"}) {
    INFO(text);
    CHECK_THROWS_AS(JobEnd(lookup({{"LOCKSTEP_JOB_END", text}})), Error);
  }
}

TEST_CASE(
    "of Slurm's variable only a time in the future counts, and anything else is ignored with a warning that names it") {
  for (const std::string& text : {std::string("Unknown"), std::string("0"), std::string("-1"), std::string("NONE"),
                                  std::string("17e9x"), in_seconds(-100), std::string("1700000000")}) {
    INFO(text);
    LogCapture log;
    CHECK(std::isinf(JobEnd(lookup({{"SLURM_JOB_END_TIME", text}})).seconds_left()));
    CHECK_THAT(log.text(),
               ContainsSubstring("warning: environment variable SLURM_JOB_END_TIME = '" + text + "' is ignored"));
  }
  const auto both = lookup({{"SLURM_JOB_END_TIME", "Unknown"}, {"LOCKSTEP_JOB_END", in_seconds(1000)}});
  CHECK(JobEnd(both).seconds_left() > 900);
}

TEST_CASE("a run stops when the steps that remain and two saves may no longer fit") {
  const auto ends_in = [](int seconds) { return JobEnd(lookup({{"LOCKSTEP_JOB_END", in_seconds(seconds)}})); };
  CHECK_FALSE(JobEnd().must_stop(20, 100));
  CHECK_FALSE(ends_in(1'000'000).must_stop(20, 100));
  CHECK_FALSE(ends_in(395).must_stop(20, 100));  // 335 s are needed
  CHECK(ends_in(334).must_stop(20, 100));
  CHECK(ends_in(4).must_stop(0, 0));
}
