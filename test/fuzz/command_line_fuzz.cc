// A command line, one argument a line: commands, benchmark flags, and the keys of the configuration.
#include "app/cli/command_line.h"

#include "test/fuzz/targets.h"

namespace lockstep::fuzz {

void command_line(Bytes input) {
  std::vector<std::string> arguments;
  for (std::string_view text = as_text(input); !text.empty();) {
    const size_t end = std::min(text.find('\n'), text.size());
    arguments.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  expect_answer([&] {
    const CommandLine line = parse_command_line(arguments);
    load_config({.overrides = line.overrides, .working_directory = "/work"});
  });
  expect_answer([&] {
    if (is_benchmark(arguments)) parse_benchmark_flags(arguments);
  });
}

}  // namespace lockstep::fuzz
