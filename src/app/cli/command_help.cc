#include "app/cli/command_help.h"

#include <fmt/format.h>

#include <algorithm>

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
  std::string allowed;
  for (const std::string_view word : key.allowed) allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", word);
  if (allowed.empty() && key.range.limited()) allowed = key.range.text();
  return allowed;
}

}  // namespace

std::string short_help(const NamesAndMeanings& subcommands) {
  constexpr size_t kIndent = 16;
  std::string out =
      "Trains a network on the ranks of an MPI job:\n\n"
      "  mpirun -np N trainer --config FILE|RECIPE [--section.key VALUE ...]\n"
      "  trainer SUBCOMMAND ...\n\nSubcommands (each has a --help):\n";
  for (const auto& [name, meaning] : subcommands) out += wrapped("  " + name, kIndent, meaning);
  out += "\nOptions:\n";
  out += wrapped("  --config FILE|RECIPE", 26, "Configuration file, or the name of a bundled recipe");
  out += wrapped("  --section.key VALUE", 26, "A key of the configuration; goes before environment and file");
  out += wrapped("  --help-keys", 26, "Print what every key means, its default and what is allowed");
  out += wrapped("  -h, --help", 26, "Print this and leave");
  out += wrapped("  --version", 26, "Print the versions of program and libraries and leave");
  out += "\nKeys, by section:\n";
  for (const std::string_view section : config_sections()) {
    std::string names;
    for (const ConfigKey& key : config_keys()) {
      if (key.section == section) names += fmt::format("{}{}", names.empty() ? "" : " ", key.name);
    }
    out += wrapped(fmt::format("  [{}]", section), kIndent, names);
  }
  return out +
         "\nA benchmark on made-up images, with the flags of tf_cnn_benchmarks:\n"
         "  mpirun -np N trainer --model inception3 --batch_size 64 --num_batches 100\n";
}

std::string keys_help() {
  std::string out;
  const Config defaults;
  for (const std::string_view section : config_sections()) {
    out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
    for (const ConfigKey& key : config_keys()) {
      if (key.section != section) continue;
      const std::string allowed = limits(key);
      out += wrapped(fmt::format("  --{}", key.full_name()), 4,
                     fmt::format("{} [{}{}default {}]", key.meaning, allowed, allowed.empty() ? "" : "; ",
                                 config_value_toml(key.member.get(defaults))));
    }
  }
  return out;
}

}  // namespace lockstep
