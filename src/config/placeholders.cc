#include "lockstep/config/placeholders.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/config/keys.h"
#include "lockstep/config/value.h"

namespace lockstep {
namespace {

constexpr std::string_view kTime = "time";

constexpr Placeholder kPlaceholders[] = {
    {"model", "`model.name`, or the name of `model.file`",
     [](const Config& c, const StartFacts&) {
       const bool from_file = c.model.name == "file" && !c.model.file.empty();
       return from_file ? std::filesystem::path(c.model.file).stem().string() : c.model.name;
     }},
    {"seed", "`train.seed`", [](const Config& c, const StartFacts&) { return std::to_string(c.train.seed); }},
    {"ranks", "number of ranks", [](const Config&, const StartFacts& f) { return std::to_string(f.ranks); }},
    {kTime, "when the run starts, by the clock of rank 0: `20261129-140305`",
     [](const Config&, const StartFacts& f) { return f.time; }},
    {"job", "`SLURM_JOB_ID`, which a requeued job keeps", [](const Config&, const StartFacts& f) { return f.job; }},
};

// Returns the value as a part of a file name.
std::string file_name_of(std::string value) {
  constexpr std::string_view kOthers = "-_.+=,";
  const auto is_odd = [&](unsigned char c) {
    return c < 0x80 && !std::isalnum(c) && kOthers.find(static_cast<char>(c)) == std::string_view::npos;
  };
  std::ranges::replace_if(value, is_odd, '_');
  return value;
}

std::string value_of(std::string_view name, const Config& config, const StartFacts& facts, std::string_view where) {
  const auto* const found = std::ranges::find(kPlaceholders, name, &Placeholder::name);
  const auto checked = [&](const std::string& value, std::string_view meaning) {
    if (value.empty()) fail(ExitCode::config, "{}: {{{}}} has no value here: it is {}", where, name, meaning);
    return file_name_of(value);
  };
  if (found != std::end(kPlaceholders)) return checked(found->value(config, facts), found->meaning);
  const ConfigKey* const key = find_config_key(name);
  if (key && key->path == PathRole::none && key->member.type <= ConfigType::text) {
    const ConfigValue value = key->member.get(config);
    const auto* const text = std::get_if<std::string>(&value);
    return checked(text ? *text : config_value_toml(value), "an empty text");
  }
  std::vector<std::string> known;
  std::string listed;
  for (const Placeholder& placeholder : kPlaceholders) {
    known.emplace_back(placeholder.name);
    listed += fmt::format("{}{{{}}}", listed.empty() ? "" : ", ", placeholder.name);
  }
  for (const ConfigKey& one : config_keys()) known.push_back(one.full_name());
  fail(
      ExitCode::config,
      "{}: {{{}}} is no placeholder{}; there are {} and {{section.key}} of a key with one value that is no path; write "
      "{{{{ for a brace",
      where, name, did_you_mean(name, known), listed);
}

// Calls `use` with each placeholder of `path` and puts the text that it returns in its place.
template <class Use>
std::string replace_placeholders(std::string_view path, const Use& use) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    const bool doubled = i + 1 < path.size() && path[i + 1] == path[i];
    const size_t end = path[i] == '{' && !doubled ? path.find('}', i) : std::string_view::npos;
    if (end != std::string_view::npos) {
      out += use(path.substr(i + 1, end - i - 1));
      i = end;
      continue;
    }
    out += path[i];
    if ((path[i] == '{' || path[i] == '}') && doubled) ++i;
  }
  return out;
}

}  // namespace

std::span<const Placeholder> placeholders() { return kPlaceholders; }

void fill_in_placeholders(Config& config, const StartFacts& facts) {
  const Config given = config;
  for (const ConfigKey& key : config_keys()) {
    if (key.path != PathRole::output_pattern) continue;
    const auto path = std::get<std::string>(key.member.get(given));
    const std::string where = fmt::format("{} = {}", key.full_name(), quote_for_message(path));
    key.member.set(
        config, replace_placeholders(path, [&](std::string_view name) { return value_of(name, given, facts, where); }));
  }
}

bool contains_time(std::string_view path) {
  bool found = false;
  replace_placeholders(path, [&](std::string_view name) {
    found = found || name == kTime;
    return std::string();
  });
  return found;
}

std::string without_placeholders(std::string_view path) {
  std::string out;
  for (const char c : path) out.append(c == '{' || c == '}' ? 2 : 1, c);
  return out;
}

}  // namespace lockstep
