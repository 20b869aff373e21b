#include "lockstep/base/nearest_word.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "lockstep/base/printable.h"

namespace lockstep {

size_t allowed_edits(std::string_view word) { return std::clamp<size_t>(word.size() / 3, 1, 3); }

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

std::string did_you_mean(std::vector<std::string> suggestions) {
  if (suggestions.empty()) return {};
  for (std::string& suggestion : suggestions) suggestion = printable(suggestion);  // it may come from a file
  return fmt::format("; did you mean {}?", fmt::join(suggestions, " or "));
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_word(word, candidates);
  return did_you_mean(nearest.empty() ? std::vector<std::string>{} : std::vector{nearest});
}

}  // namespace lockstep
