#include "config/file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/config/keys.h"
#include "lockstep/config/suggest.h"
#include "lockstep/config/value.h"
#include "lockstep/io/toml_limits.h"

namespace lockstep {
namespace {

// One assignment of the file before the key has been looked up. An unknown section is also an entry, with an empty
// name.
struct RawEntry {
  std::string section;
  std::string name;
  const toml::node* node;
  int line;
};

std::string at(const std::string& path, int line) { return fmt::format("{}:{}", path, line); }

int line_of(const toml::source_region& region) { return static_cast<int>(region.begin.line); }

toml::table parse_toml(std::string_view text, const std::string& path) {
  require_bounded_toml(text, path);
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& e) {
    fail(ExitCode::config, "{}: not valid TOML: {}", at(path, line_of(e.source())), printable(e.description()));
  }
}

bool is_section(std::string_view name) {
  const std::vector<std::string_view> sections = config_sections();
  return std::ranges::find(sections, name) != sections.end();
}

// Returns the assignments in the order of the file, so that the first error of the file is reported. toml++ sorts
// tables by name.
std::vector<RawEntry> flatten(const toml::table& root) {
  std::vector<RawEntry> entries;
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    const toml::table* section = node.as_table();
    if (!section) {
      entries.push_back({.section = "", .name = name, .node = &node, .line = line_of(key.source())});
    } else if (!is_section(name)) {
      entries.push_back({.section = name, .name = "", .node = &node, .line = line_of(key.source())});
    } else {
      for (const auto& [inner_key, inner] : *section) {
        entries.push_back({.section = name,
                           .name = std::string(inner_key.str()),
                           .node = &inner,
                           .line = line_of(inner_key.source())});
      }
    }
  }
  std::ranges::stable_sort(entries, {}, &RawEntry::line);
  return entries;
}

[[noreturn]] void fail_unknown(const RawEntry& entry, const std::string& where) {
  if (entry.name.empty() && !entry.section.empty()) {
    std::vector<std::string> sections;
    for (const std::string_view section : config_sections()) sections.emplace_back(section);
    fail(ExitCode::config, "{}: unknown section {}{}", where, quote_for_message(entry.section),
         did_you_mean(entry.section, sections));
  }
  const std::string suggestion = did_you_mean(suggest_keys(entry.section, entry.name));
  if (entry.section.empty()) {
    fail(ExitCode::config, "{}: key {} stands outside every section{}", where, quote_for_message(entry.name),
         suggestion);
  }
  fail(ExitCode::config, "{}: unknown key {} in section [{}]{}", where, quote_for_message(entry.name), entry.section,
       suggestion);
}

std::string describe_node(const toml::node& node) {
  if (const auto* text = node.as_string()) return fmt::format("the string {}", quote_for_message(text->get()));
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* integer = node.as_integer()) return fmt::format("the integer {}", integer->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("the number {}", number->get());
  if (node.is_array()) return "a list";
  if (node.is_table()) return "a section";
  return "a date or time";
}

std::optional<int64_t> as_integer(const toml::node& node) {
  if (const auto* integer = node.as_integer()) return integer->get();
  int64_t exact = 0;
  const auto* number = node.as_floating_point();
  return number && exact_integer(number->get(), exact) ? std::optional(exact) : std::nullopt;
}

std::optional<double> as_number(const toml::node& node) {
  if (const auto* integer = node.as_integer()) return static_cast<double>(integer->get());
  const auto* number = node.as_floating_point();
  return number && std::isfinite(number->get()) ? std::optional(number->get()) : std::nullopt;
}

std::optional<std::string> as_text(const toml::node& node) {
  const auto* text = node.as_string();
  return text ? std::optional(text->get()) : std::nullopt;
}

// Returns the items of a list; a single item counts as a list of one. Returns nullopt if an item has another type.
template <class T>
std::optional<std::vector<T>> as_list(const toml::node& node, std::optional<T> (*as_item)(const toml::node&)) {
  const toml::array* array = node.as_array();
  std::vector<T> items;
  for (size_t i = 0; i < (array ? array->size() : 1); ++i) {
    const std::optional<T> item = as_item(array ? *array->get(i) : node);
    if (!item) return std::nullopt;
    items.push_back(*item);
  }
  return items;
}

template <class T>
std::optional<ConfigValue> as_config_value(std::optional<T> value) {
  return value ? std::optional(ConfigValue(std::move(*value))) : std::nullopt;
}

std::optional<ConfigValue> convert(ConfigType type, const toml::node& node) {
  switch (type) {
    case ConfigType::boolean:
      return as_config_value(node.value_exact<bool>());
    case ConfigType::integer:
      return as_config_value(as_integer(node));
    case ConfigType::number:
      return as_config_value(as_number(node));
    case ConfigType::text:
      return as_config_value(as_text(node));
    case ConfigType::text_list:
      return as_config_value(as_list(node, as_text));
    case ConfigType::integer_list:
      return as_config_value(as_list(node, as_integer));
    case ConfigType::number_list:
      return as_config_value(as_list(node, as_number));
  }
  return std::nullopt;
}

ConfigFileEntry checked_entry(const ConfigKey& key, const toml::node& node, const std::string& path, int line) {
  const std::string where = at(path, line);
  const std::optional<ConfigValue> value = convert(key.member.type, node);
  if (!value) {
    fail(ExitCode::config, "{}: {} takes {}, not {}", where, key.full_name(), describe(key.member.type),
         describe_node(node));
  }
  check_config_value(key, *value, where);
  return {.key = &key, .value = *value, .line = line};
}

}  // namespace

std::optional<ConfigValue> parse_toml_list(ConfigType type, std::string_view text, const std::string& where) {
  const toml::table root = parse_toml(fmt::format("list = {}", text), where);
  const toml::node* list = root.get("list");
  if (root.size() != 1 || !list || !list->is_array()) return std::nullopt;  // several lines, or more than a list
  return convert(type, *list);
}

std::vector<ConfigFileEntry> parse_config_file(std::string_view text, const std::string& path,
                                               ConfigExtension* extension) {
  const toml::table root = parse_toml(text, path);
  std::vector<ConfigFileEntry> entries;
  for (const RawEntry& raw : flatten(root)) {
    const std::string where = at(path, raw.line);
    if (extension && raw.section.empty() && raw.name == "extends") {
      *extension = {.name = as_text(*raw.node).value_or(""), .line = raw.line};
      if (!extension->name.empty()) continue;
      fail(ExitCode::config, "{}: extends takes the path of a file or the name of a recipe, not {}", where,
           describe_node(*raw.node));
    }
    const ConfigKey* key = find_config_key(fmt::format("{}.{}", raw.section, raw.name));
    if (!key) fail_unknown(raw, where);
    entries.push_back(checked_entry(*key, *raw.node, path, raw.line));
  }
  return entries;
}

std::vector<ConfigFileEntry> parse_model_sizes(std::string_view text, const std::string& path) {
  const toml::table root = parse_toml(text, path);
  std::vector<ConfigFileEntry> entries;
  for (const char* name : {"classes", "image_size"}) {
    const toml::node* node = root.get(name);
    if (!node) continue;
    entries.push_back(
        checked_entry(*find_config_key(fmt::format("model.{}", name)), *node, path, line_of(node->source())));
  }
  return entries;
}

}  // namespace lockstep
