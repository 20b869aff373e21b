// The help, man page and completion of `trainer`. No line of the help is wider than a terminal.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

struct OptionHelp {
  std::string flag;        // "--top"; empty: it is only an argument
  std::string positional;  // "images"; empty: it is only an option
  std::string type;        // "N", or words "table|csv|json"; empty: it takes no value
  std::string meaning;
};

struct CommandHelp {
  std::string name;  // empty: the program itself, whose options include the keys of the configuration
  std::string meaning;
  std::vector<OptionHelp> options;
  bool takes_configuration = true;
};

// Returns the short help, which fits on a screen. The program comes first among `commands`.
std::string short_help(const std::vector<CommandHelp>& commands);

// Returns the help of every key: type, default, allowed values, and meaning.
std::string keys_help();

// Returns a manual page in roff.
std::string man_page(const std::vector<CommandHelp>& commands);

// Returns the completion for bash, to be sourced: subcommands, options, and values that are words.
std::string bash_completion(const std::vector<CommandHelp>& commands);

}  // namespace lockstep
