// Environment variables, one NAME=VALUE a line, as every reader of them takes them; and the control group's files.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/cpu_cores.h"
#include "lockstep/comm/supervision/launcher.h"
#include "lockstep/config/load.h"
#include "lockstep/train/job_end.h"
#include "test/fuzz/targets.h"

namespace lockstep::fuzz {
namespace {

std::vector<Assignment> variables_of(std::string_view text) {
  std::vector<Assignment> variables;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const size_t equals = line.find('=');
    if (equals != std::string_view::npos) {
      variables.push_back({std::string(line.substr(0, equals)), std::string(line.substr(equals + 1))});
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return variables;
}

}  // namespace

void environment(Bytes input) {
  const std::vector<Assignment> variables = variables_of(as_text(input));
  const EnvironmentLookup lookup = [&](const char* name) -> std::optional<std::string> {
    for (const Assignment& variable : variables) {
      if (variable.name == name) return variable.value.substr(0, variable.value.find('\0'));
    }
    return std::nullopt;
  };
  expect_answer([&] { load_config({.environment = variables, .working_directory = "/work"}); });
  expect_answer([&] { JobEnd(lookup).seconds_left(); });
  expect_answer([&] { launch_claim(lookup); });
  expect_answer([&] { require_printable(launcher_mismatch(1, lookup).value_or("")); });
  const std::string text(as_text(input));
  const auto require_quota = [](std::optional<double> quota) {
    require_law(!quota || *quota > 0, "a quota is a share of time");
  };
  require_quota(parse_cpu_max(text));
  require_quota(parse_cfs_quota(text, "100000"));
  require_quota(parse_cfs_quota("100000", text));
  const std::optional<int> threads = parse_omp_num_threads(lookup("OMP_NUM_THREADS").value_or(text));
  require_law(!threads || (*threads >= 1 && *threads <= kMostThreads), "a number of threads is within reason");
}

}  // namespace lockstep::fuzz
