#include "lockstep/config/suggest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "lockstep/config/keys.h"

namespace lockstep {
namespace {

constexpr size_t kMaxWordLength = 64;  // a longer word cannot be a misspelling of a key

size_t allowed_edits(std::string_view word) { return std::clamp<size_t>(word.size() / 3, 1, 3); }

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

size_t edit_distance(std::string_view from, std::string_view to, size_t limit) {
  const size_t difference = from.size() > to.size() ? from.size() - to.size() : to.size() - from.size();
  if (difference > limit) return limit + 1;
  // This is the optimal string alignment distance, which needs only the last three rows of the table.
  std::vector<size_t> before(to.size() + 1), previous(to.size() + 1), row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= from.size(); ++i) {
    std::swap(before, previous);
    std::swap(previous, row);
    row[0] = i;
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replace = previous[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, replace});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return std::min(row[to.size()], limit + 1);
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  std::string best;
  if (word.size() > kMaxWordLength) return best;
  size_t fewest = allowed_edits(word) + 1;
  for (const std::string& candidate : candidates) {
    const size_t edits = edit_distance(word, candidate, fewest);
    if (edits < fewest) {
      fewest = edits;
      best = candidate;
    }
  }
  return best;
}

std::vector<std::string> suggest_keys(std::string_view section, std::string_view name) {
  const std::string wanted_section = normalized(section);
  const std::string wanted_name = normalized(name);
  if (const ConfigKey* key = find_config_key(wanted_section, wanted_name)) return {key->full_name()};

  std::vector<std::string> found;
  for (const ConfigKey& key : config_keys()) {
    if (key.section == wanted_section && bears_name(key, wanted_name)) return {key.full_name()};
    if (bears_name(key, wanted_name) && found.size() < 3) found.push_back(key.full_name());
  }
  // If only the section is misspelt, the section decides among the keys of that name.
  if (found.size() > 1 && !wanted_section.empty()) {
    const std::string full_name = fmt::format("{}.{}", wanted_section, wanted_name);
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

std::string did_you_mean(const std::vector<std::string>& suggestions) {
  if (suggestions.empty()) return {};
  return fmt::format("; did you mean {}?", fmt::join(suggestions, " or "));
}

}  // namespace lockstep
