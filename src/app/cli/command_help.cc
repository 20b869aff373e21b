#include "app/cli/command_help.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "lockstep/config/keys.h"
#include "lockstep/config/value.h"

namespace lockstep {
namespace {

constexpr size_t kColumns = 96;

// Wraps `text`, indenting each line by `indent` spaces. The first line starts with `start` instead of spaces.
std::string wrapped(std::string start, size_t indent, std::string_view text) {
  std::string out;
  start.resize(std::max(start.size(), indent), ' ');
  if (start.size() > indent) {  // too long for text on the same line
    out = start + "\n";
    start.assign(indent, ' ');
  }
  std::string line = start;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    if (line.size() > indent && line.size() + word.size() + 1 > kColumns) {
      out += line + "\n";
      line.assign(indent, ' ');
    }
    if (line.size() > indent) line += ' ';
    line += word;
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return out + line + "\n";
}

std::string limits(const ConfigKey& key) {
  if (key.allowed.empty()) return key.range.limited() ? key.range.text() : "";
  return fmt::format("{}", fmt::join(key.allowed, ", "));
}

std::string key_meaning(const ConfigKey& key) {
  const std::string allowed = limits(key);
  return fmt::format("{} [{}{}default {}]", key.meaning, allowed, allowed.empty() ? "" : "; ",
                     config_value_toml(key.member.get(Config())));
}

// Returns the text with an escape before everything that roff would interpret.
std::string roff(std::string_view text) {
  std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (const char c : text) out += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
  return out;
}

std::string roff_item(const std::string& name, const std::string& type, const std::string& meaning) {
  return fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(name), type.empty() ? "" : " \\fI" + roff(type) + "\\fR",
                     roff(meaning));
}

std::string roff_options(const CommandHelp& command) {
  std::string out;
  for (const OptionHelp& option : command.options) {
    if (option.flag.find('.') != std::string::npos) continue;        // a key
    if (!command.name.empty() && option.flag == "--help") continue;  // every subcommand has it
    const std::string both = option.positional.empty() || option.flag.empty() ? "" : ", ";
    out += roff_item(option.positional + both + option.flag, option.type, option.meaning);
  }
  return out;
}

// Returns the words of a type such as "table|csv|json" with spaces between them, or nothing for any other.
std::string words_of(std::string type) {
  const auto no_word = [](unsigned char c) { return std::isupper(c) || c == '.' || c == ','; };
  if (type.find('|') == std::string::npos || std::ranges::any_of(type, no_word)) return {};
  std::ranges::replace(type, '|', ' ');
  return type;
}

}  // namespace

std::string short_help(const std::vector<CommandHelp>& commands) {
  constexpr size_t kNames = 12, kOptions = 24;
  std::string out =
      "Trains a network on the ranks of an MPI job:\n"
      "  mpirun -np N trainer [train] --config FILE|RECIPE [--section.key VALUE ...]\n"
      "  mpirun -np N trainer --model inception3 ...    (flags of tf_cnn_benchmarks)\n"
      "  trainer SUBCOMMAND ...\n\nSubcommands (each has a --help):\n";
  for (const CommandHelp& command : commands) {
    if (!command.name.empty()) out += wrapped("  " + command.name, kNames, command.meaning);
  }
  out += "\nOptions:\n";
  out += wrapped("  --config FILE|RECIPE", kOptions, "Configuration file, or the name of a bundled recipe");
  out += wrapped("  --section.key VALUE", kOptions, "A key; takes precedence over environment and file");
  out += wrapped("  --dump-config FILE", kOptions, "Write the whole configuration and leave (-: stdout)");
  out += wrapped("  --help-keys|man|bash", kOptions, "Print all keys, the man page, or completion for bash");
  out += wrapped("  -h, --help; --version", kOptions, "Print this, or the versions of program and libraries");
  return out;
}

std::string keys_help() {
  std::string out;
  for (const std::string_view section : config_sections()) {
    out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    for (const ConfigKey& key : config_keys()) {
      if (key.section == section) out += wrapped(fmt::format("  --{}", key.full_name()), 4, key_meaning(key));
    }
  }
  return out;
}

std::string man_page(const std::vector<CommandHelp>& commands) {
  std::string out =
      ".TH TRAINER 1 \"\" \"Lockstep " LOCKSTEP_VERSION
      "\" \"User Commands\"\n"
      ".SH NAME\ntrainer \\- train convolutional networks on the ranks of an MPI job\n"
      ".SH SYNOPSIS\n.nf\n"
      "\\fBmpirun \\-np\\fR \\fIN\\fR \\fBtrainer\\fR [\\fBtrain\\fR] \\fB\\-\\-config\\fR \\fIFILE|RECIPE\\fR "
      "[\\fB\\-\\-section.key\\fR \\fIVALUE\\fR ...]\n"
      "\\fBtrainer\\fR \\fISUBCOMMAND\\fR ...\n.fi\n"
      ".SH DESCRIPTION\n"
      "Settings come from the command line, the environment (LOCKSTEP_TRAIN_SEED=7 sets train.seed), the file, and the "
      "defaults of the model, in this order of precedence.\n"
      "The command that starts a run also resumes it.\n"
      ".SH OPTIONS\n";
  out += roff_options(commands.front());
  out += ".SH SUBCOMMANDS\n";
  for (const CommandHelp& command : commands) {
    if (command.name.empty()) continue;
    out += fmt::format(".SS {}\n{}.\n{}", command.name, roff(command.meaning), roff_options(command));
  }
  out += ".SH KEYS\n";
  for (const std::string_view section : config_sections()) {
    out += fmt::format(".SS [{}]\n", section);
    for (const ConfigKey& key : config_keys()) {
      if (key.section == section) out += roff_item("--" + key.full_name(), "", key_meaning(key));
    }
  }
  return out +
         ".SH EXIT STATUS\n"
         "0: finished. 1: internal error, or out of memory. 2: configuration or command line. 3: data. 4: numbers that "
         "are not finite. 5: a file cannot be "
         "read or written. 6: a rank does not answer. 75: stopped, and the state is saved.\n";
}

std::string bash_completion(const std::vector<CommandHelp>& commands) {
  std::string names, values, options, files, keys;
  std::set<std::string> seen;
  for (const CommandHelp& command : commands) {
    std::string flags;
    for (const auto& [flag, positional, type, meaning] : command.options) {
      if (flag.empty()) continue;
      flags += (flags.empty() ? "" : " ") + flag;
      if (type.empty() || !seen.insert(flag).second) continue;
      const std::string words = words_of(type);
      if (words.empty()) {
        files += (files.empty() ? "" : "|") + flag;
      } else {
        values += fmt::format("    {}) words=\"{}\" ;;\n", flag, words);
      }
    }
    if (command.name.empty()) {
      keys = flags;
      continue;
    }
    names += (names.empty() ? "" : " ") + command.name;
    options +=
        fmt::format("    {}) options=\"{}{}\" ;;\n", command.name, flags, command.takes_configuration ? " $keys" : "");
  }
  std::string patterns = names;
  std::ranges::replace(patterns, ' ', '|');
  return fmt::format(R"(# Completion of trainer for bash; printed by trainer --help-bash.
_trainer() {{
  local keys="{}"
  local command=train options= words= word
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case $word in {}) command=$word; break ;; esac
  done
  case $command in
{}  esac
  case $previous in
{}    {}) COMPREPLY=(); return ;;
    *) [[ $current == -* ]] && words=$options || {{ ((COMP_CWORD == 1)) && words="{}"; }} ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _trainer trainer
)",
                     keys, patterns, options, values, files, names);
}

}  // namespace lockstep
