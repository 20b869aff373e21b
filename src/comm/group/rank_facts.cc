#include "lockstep/comm/group/rank_facts.h"

#include <algorithm>

#include "lockstep/comm/group/rank_names.h"

namespace lockstep {
namespace {

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

std::string group_by_value(std::span<const std::string> values, std::span<const std::string> hosts) {
  std::string text;
  for (const auto& [value, ranks] : group_ranks(values)) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", value, fold_ranks(ranks, hosts));
  }
  return text;
}

std::optional<Finding> difference(const FactRow& row, std::span<const std::string> hosts) {
  if (!row.differs()) return std::nullopt;
  return Finding{.blame = row.fact.blame,
                 .what = fmt::format("{} differs between ranks ({})", row.fact.name, group_by_value(row.values, hosts)),
                 .advice = row.fact.advice};
}

}  // namespace lockstep
