#include "lockstep/comm/group/rank_facts.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

constexpr size_t kMaxNames = 4;  // the rest is counted, because a job may have hundreds of ranks

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

bool FactRow::differs() const {
  return std::ranges::any_of(values, [&](const std::string& value) { return value != values.front(); });
}

std::vector<FactRow> gather_facts(ProcessGroup& group, const Timeout& wait, std::span<const Fact> facts) {
  std::string mine;
  for (const Fact& fact : facts) (mine += fact.value) += '\0';
  std::vector<FactRow> rows;
  for (const Fact& fact : facts) rows.push_back({.fact = fact, .values = {}});
  for (const std::string& text : group.all_gather(mine, wait)) {
    const std::vector<std::string> values = split(text, '\0');
    require(values.size() == rows.size() + 1, "the ranks bring different numbers of facts");
    for (size_t i = 0; i < rows.size(); ++i) rows[i].values.push_back(values[i]);
  }
  return rows;
}

std::string group_by_value(std::span<const std::string> values, std::span<const std::string> names) {
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (size_t r = 0; r < values.size(); ++r) {
    auto found = std::ranges::find(groups, values[r], &std::pair<std::string, std::vector<std::string>>::first);
    if (found == groups.end()) found = groups.insert(groups.end(), {values[r], {}});
    found->second.push_back(names[r]);
  }
  std::string text;
  for (const auto& [value, ranks] : groups) {
    if (!text.empty()) text += "; ";
    text += value + ": ";
    const size_t shown = ranks.size() <= kMaxNames ? ranks.size() : kMaxNames - 1;
    for (size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + ranks[i];
    if (shown < ranks.size()) text += fmt::format(" and {} more", ranks.size() - shown);
  }
  return text;
}

std::optional<Finding> difference(const FactRow& row, std::span<const std::string> names) {
  if (!row.differs()) return std::nullopt;
  return Finding{.blame = row.fact.blame,
                 .what = fmt::format("{} differs between ranks ({})", row.fact.name, group_by_value(row.values, names)),
                 .advice = row.fact.advice};
}

}  // namespace lockstep
