#include "lockstep/config/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "lockstep/config/keys.h"

namespace lockstep {
namespace {

// Returns the name in lower case with underscores instead of dashes.
std::string normalized(std::string_view name) {
  std::string out(name.substr(0, kMaxWordLength + 1));
  for (char& c : out) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool bears_name(const ConfigKey& key, std::string_view name) {
  return key.name == name || std::ranges::find(key.also, name) != key.also.end();
}

}  // namespace

std::vector<std::string> suggest_keys(std::string_view section, std::string_view name) {
  const std::string wanted_section = normalized(section);
  const std::string wanted_name = normalized(name);
  const std::string full_name = fmt::format("{}.{}", wanted_section, wanted_name);
  if (find_config_key(full_name)) return {full_name};

  std::vector<std::string> found;
  for (const ConfigKey& key : config_keys()) {
    if (key.section == wanted_section && bears_name(key, wanted_name)) return {key.full_name()};
    if (bears_name(key, wanted_name) && found.size() < 3) found.push_back(key.full_name());
  }
  // If only the section is misspelt, the section decides among the keys of that name.
  if (found.size() > 1 && !wanted_section.empty()) {
    if (const std::string best = nearest_word(full_name, found); !best.empty()) return {best};
  }
  if (!found.empty() || wanted_name.size() > kMaxWordLength) return found;

  // Find the nearest spelling. A key of another section counts as one more edit.
  size_t fewest = allowed_edits(wanted_name) + 1;
  for (const ConfigKey& key : config_keys()) {
    size_t edits = edit_distance(wanted_name, key.name, fewest);
    for (const std::string_view other : key.also) edits = std::min(edits, edit_distance(wanted_name, other, fewest));
    if (key.section != wanted_section) ++edits;
    if (edits < fewest) {
      fewest = edits;
      found = {key.full_name()};
    }
  }
  return found;
}

}  // namespace lockstep
