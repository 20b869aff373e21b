#include "app/launch_agreement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "lockstep/base/printable.h"
#include "lockstep/base/split_words.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/config/sources.h"

namespace lockstep {
namespace {

constexpr double kAgreeSeconds = 60;

// Returns the arguments as text with a NUL after each.
std::string arguments_of(const CommandLine& line) {
  std::string text;
  const auto add = [&](std::string_view name, const auto& value) {
    (text += fmt::format("--{} {}", name, value)) += '\0';
  };
  if (!line.config.empty()) add("config", line.config);
  for (const Assignment& given : line.overrides) add(given.name, given.value);
  if (!line.checkpoint.empty()) add("checkpoint", line.checkpoint);
  for (const std::string& image : line.predict.images) add("image", image);
  if (line.command == Command::predict) {
    add("top", line.predict.top);
    add("format", line.predict.format);
  }
  if (line.command == Command::evaluate) add("per_class", line.per_class);
  if (line.command == Command::profile) add("steps", line.profile.steps);
  if (!line.confusion.empty()) add("confusion", line.confusion);
  if (line.average) add("ema", line.average);
  if (line.command == Command::benchmark) {
    const BenchmarkOptions& options = line.benchmark;
    add("num_batches", options.batches);
    add("num_warmup_batches", options.warm_up);
    add("num_alone_batches", options.alone);
    add("display_every", options.display_every);
    add("forward_only", options.forward_only);
    add("benchmark_log_dir", options.log_directory);
  }
  return text;
}

std::string environment_text() {
  std::string text;
  for (const Assignment& setting : environment_settings()) (text += setting.name + "=" + setting.value) += '\0';
  return text;
}

[[noreturn]] void refuse(const ProcessGroup& group, size_t rank, const std::string& its, const std::string& ours) {
  throw AgreedError(
      ExitCode::config,
      fmt::format("{} was started with {}, but {} with {}: rank 0's settings count for all ranks, so start "
                  "all of them with the same",
                  group.describe(static_cast<int>(rank)), its, group.describe(0), ours));
}

// Returns the elements of `some` that are not in `others`.
std::string only_in(const std::vector<std::string_view>& some, const std::vector<std::string_view>& others) {
  std::vector<std::string_view> only;
  std::ranges::copy_if(some, std::back_inserter(only),
                       [&](std::string_view one) { return std::ranges::find(others, one) == others.end(); });
  return only.empty() ? "no such argument" : fmt::format("'{}'", printable(fmt::format("{}", fmt::join(only, " "))));
}

void compare_arguments(ProcessGroup& group, const CommandLine& line, const Timeout& wait) {
  const std::vector<std::string> all = group.all_gather(arguments_of(line), wait);
  const std::vector<std::string_view> ours = split_words(all[0], '\0');
  for (size_t r = 1; r < all.size(); ++r) {
    const std::vector<std::string_view> theirs = split_words(all[r], '\0');
    if (theirs != ours) refuse(group, r, only_in(theirs, ours), only_in(ours, theirs));
  }
}

void compare_environments(ProcessGroup& group, const Timeout& wait) {
  const std::vector<std::string> all = group.all_gather(environment_text(), wait);
  const std::vector<std::string_view> ours = split_words(all[0], '\0');
  for (size_t r = 1; r < all.size(); ++r) {
    for (const std::string_view setting : split_words(all[r], '\0')) {
      if (std::ranges::find(ours, setting) != ours.end()) continue;
      const std::string_view name = setting.substr(0, setting.find('=') + 1);
      const auto same_name = std::ranges::find_if(ours, [&](std::string_view s) { return s.starts_with(name); });
      refuse(group, r, printable(setting),
             same_name == ours.end() ? "no such variable in its environment" : printable(*same_name));
    }
  }
}

}  // namespace

void agree_on_launch(ProcessGroup& group, const CommandLine& line, const std::optional<Error>& parse_error) {
  const Timeout wait{"the command line", kAgreeSeconds};
  agree(group, wait, parse_error);
  const auto mine = static_cast<int64_t>(line.command);
  const std::vector<int64_t> commands = group.all_gather(std::span(&mine, 1), wait);
  const auto other = std::ranges::find_if(commands, [&](int64_t command) { return command != commands[0]; });
  if (other != commands.end()) {
    throw AgreedError(ExitCode::config,
                      fmt::format("{} was started with another subcommand than {}",
                                  group.describe(static_cast<int>(other - commands.begin())), group.describe(0)));
  }
  compare_arguments(group, line, wait);
  compare_environments(group, wait);
}

}  // namespace lockstep
