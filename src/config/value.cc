#include "lockstep/config/value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "config/file.h"
#include "lockstep/base/error.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/base/printable.h"
#include "lockstep/config/placeholders.h"
#include "lockstep/io/path_pattern.h"

namespace lockstep {
namespace {

std::optional<double> parse_decimal(std::string_view text) { return parse_number<double>(text); }

std::optional<int64_t> parse_integer(std::string_view text) {
  if (const std::optional<int64_t> value = parse_number<int64_t>(text)) return value;
  const std::optional<double> number = parse_decimal(text);
  int64_t integer = 0;
  return number && exact_integer(*number, integer) ? std::optional(integer) : std::nullopt;
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> items;
  for (size_t start = 0; !text.empty();) {
    const size_t comma = text.find(',', start);
    items.push_back(text.substr(start, comma - start));
    if (comma == std::string_view::npos) break;
    start = comma + 1;
  }
  return items;
}

// Splits a list of path patterns. Commas inside braces and after backslashes do not separate items. A brace that is not
// closed is an ordinary character.
std::vector<std::string_view> split_patterns(std::string_view text) {
  std::vector<std::string_view> items;
  size_t start = 0, closed = 0;  // everything before `closed` is inside braces
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '{' && i >= closed) {
      const size_t end = text.find('}', i);
      if (end != std::string_view::npos) closed = end;
    } else if (text[i] == ',' && i >= closed) {
      items.push_back(text.substr(start, i - start));
      start = i + 1;
    }
  }
  if (!text.empty()) items.push_back(text.substr(start));
  return items;
}

[[noreturn]] void fail_type(const ConfigKey& key, std::string_view text, const std::string& where) {
  fail(ExitCode::config, "{}: {} takes {}, not {}", where, key.full_name(), describe(key.member.type),
       quote_for_message(text));
}

bool is_list(ConfigType type) {
  return type == ConfigType::text_list || type == ConfigType::integer_list || type == ConfigType::number_list;
}

// Returns whether a list is in TOML notation. A path pattern may also start with a bracket, but in a list of strings a
// quote or the closing bracket follows it.
bool is_toml_list(ConfigType type, std::string_view text) {
  if (!is_list(type) || !text.starts_with('[')) return false;
  if (type != ConfigType::text_list) return true;
  const size_t first = std::min(text.find_first_not_of(" \t", 1), text.size() - 1);
  return text[first] == '"' || text[first] == '\'' || (text[first] == ']' && first + 1 == text.size());
}

template <class T>
std::vector<T> parse_items(const ConfigKey& key, std::string_view text, const std::string& where,
                           std::optional<T> (*parse)(std::string_view)) {
  std::vector<T> items;
  for (const std::string_view item : split_at_commas(text)) {
    const std::optional<T> value = parse(item);
    if (!value) fail_type(key, text, where);
    items.push_back(*value);
  }
  return items;
}

void check_number(const ConfigKey& key, double value, const std::string& where) {
  if (!key.range.contains(value)) {
    fail(ExitCode::config, "{}: {} must be {}, not {}", where, key.full_name(), key.range.text(), value);
  }
}

void check_word(const ConfigKey& key, std::string_view word, const std::string& where) {
  if (key.allowed.empty() || key.path != PathRole::none || key.allows(word)) return;
  fail(ExitCode::config, "{}: {} = {} is not available in this version; available: {}", where, key.full_name(),
       quote_for_message(word), fmt::join(key.allowed, ", "));
}

std::string resolve_path(const ConfigKey& key, const std::string& path, const std::string& directory,
                         const std::string& where) {
  if (path.empty() || key.allows(path)) return path;
  if (path.front() == '~' || path.find('$') != std::string::npos) {
    fail(ExitCode::config,
         "{}: {} = {}: ~ and $VARIABLE are not expanded here; write the path out, or give it on the "
         "command line, where the shell expands them",
         where, key.full_name(), quote_for_message(path));
  }
  // Only the text of the user is a pattern; the directory in front of it must be taken literally.
  const bool output = key.path == PathRole::output_pattern;
  const std::string base = key.path == PathRole::input_pattern ? literal_pattern(directory)
                           : output                            ? without_placeholders(directory)
                                                               : directory;
  const std::filesystem::path normal = (std::filesystem::path(base) / path).lexically_normal();
  // "runs/a/" is the directory "runs/a".
  return (normal.has_filename() || !output ? normal : normal.parent_path()).string();
}

// Follows table 3-7 of the Unicode Standard: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const unsigned char lead = byte(i);
    const size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length == 0 || i + length > text.size()) return false;
    const unsigned char lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned char highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (length > 1 && (byte(i + 1) < lowest || byte(i + 1) > highest)) return false;
    for (size_t k = 2; k < length; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

void check_text_encoding(const ConfigKey& key, const std::string& text, const std::string& where) {
  if (is_utf8(text)) return;
  fail(ExitCode::config, "{}: {} = {} is not UTF-8 text", where, key.full_name(), quote_for_message(text));
}

std::string toml_text(bool value) { return value ? "true" : "false"; }

std::string toml_text(int64_t value) { return fmt::format("{}", value); }

std::string toml_text(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string toml_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04X}", byte);
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + '"';
}

template <class T>
std::string toml_text(const std::vector<T>& items) {
  std::vector<std::string> texts;
  for (const T& item : items) texts.push_back(toml_text(item));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

}  // namespace

bool exact_integer(double value, int64_t& integer) {
  constexpr double kLargest = 9007199254740992.0;  // 2^53; above it, doubles cannot represent every integer
  if (!(std::abs(value) <= kLargest) || std::trunc(value) != value) return false;
  integer = static_cast<int64_t>(value);
  return true;
}

std::string quote_for_message(std::string_view text) {
  constexpr size_t kLongest = 60;
  return fmt::format("'{}'", printable(text, kLongest));
}

ConfigValue parse_config_value(const ConfigKey& key, std::string_view text, const std::string& where) {
  if (is_toml_list(key.member.type, text)) {
    if (auto value = parse_toml_list(key.member.type, text, fmt::format("{}: {}", where, key.full_name())))
      return *value;
    fail_type(key, text, where);
  }
  switch (key.member.type) {
    case ConfigType::boolean:
      if (text != "true" && text != "false") fail_type(key, text, where);
      return text == "true";
    case ConfigType::integer:
      if (const std::optional<int64_t> value = parse_integer(text)) return *value;
      fail_type(key, text, where);
    case ConfigType::number:
      if (const std::optional<double> value = parse_decimal(text)) return *value;
      fail_type(key, text, where);
    case ConfigType::text:
      return std::string(text);
    case ConfigType::text_list: {
      std::vector<std::string> items;
      for (const std::string_view item :
           key.path == PathRole::input_pattern ? split_patterns(text) : split_at_commas(text)) {
        if (item.empty()) fail_type(key, text, where);
        items.emplace_back(item);
      }
      return items;
    }
    case ConfigType::integer_list:
      return parse_items(key, text, where, parse_integer);
    case ConfigType::number_list:
      return parse_items(key, text, where, parse_decimal);
  }
  fail_type(key, text, where);
}

void check_config_value(const ConfigKey& key, const ConfigValue& value, const std::string& where) {
  if (const int64_t* integer = std::get_if<int64_t>(&value)) {
    check_number(key, static_cast<double>(*integer), where);
  } else if (const double* number = std::get_if<double>(&value)) {
    check_number(key, *number, where);
  } else if (const std::string* text = std::get_if<std::string>(&value)) {
    check_word(key, *text, where);
  } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
    for (const int64_t item : *integers) check_number(key, static_cast<double>(item), where);
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    for (const double item : *numbers) check_number(key, item, where);
  }
}

ConfigValue resolve_config_paths(const ConfigKey& key, ConfigValue value, const std::string& directory,
                                 const std::string& where) {
  if (key.path == PathRole::none) return value;
  if (std::string* path = std::get_if<std::string>(&value)) *path = resolve_path(key, *path, directory, where);
  if (auto* paths = std::get_if<std::vector<std::string>>(&value)) {
    for (std::string& path : *paths) path = resolve_path(key, path, directory, where);
  }
  return value;
}

void check_config_encoding(const ConfigKey& key, const ConfigValue& value, const std::string& where) {
  if (const std::string* text = std::get_if<std::string>(&value)) check_text_encoding(key, *text, where);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value)) {
    for (const std::string& text : *texts) check_text_encoding(key, text, where);
  }
}

std::string config_value_toml(const ConfigValue& value) {
  return std::visit([](const auto& held) { return toml_text(held); }, value);
}

}  // namespace lockstep
