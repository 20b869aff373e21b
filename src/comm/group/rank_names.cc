#include "lockstep/comm/group/rank_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/base/number_ranges.h"
#include "lockstep/base/parse_number.h"

namespace lockstep {
namespace {

constexpr size_t kMostListed = 4;
constexpr std::string_view kDigits = "0123456789";

}  // namespace

std::string fold_hosts(std::span<const std::string> hosts) {
  // By the text before the last number, the number of its digits, and the text after it. Without digits: not a number.
  std::map<std::tuple<std::string, std::string, size_t>, std::set<int64_t>> folded;
  for (const std::string& host : hosts) {
    const size_t last = host.find_last_of(kDigits);
    const size_t before = last == std::string::npos ? last : host.find_last_not_of(kDigits, last);
    const size_t first = last == std::string::npos ? host.size() : before + 1;  // npos + 1 is 0
    const size_t width = last == std::string::npos ? 0 : last + 1 - first;
    const auto number = parse_number<int64_t>(host.substr(first, width));
    if (number) {
      folded[{host.substr(0, first), host.substr(first + width), width}].insert(*number);
    } else {
      folded[{host, {}, 0}];
    }
  }
  std::string text;
  for (const auto& [name, numbers] : folded) {
    const auto& [before, after, width] = name;
    const std::string number = number_ranges<int64_t>(std::vector(numbers.begin(), numbers.end()), width);
    text += fmt::format("{}{}{}{}", text.empty() ? "" : ", ", before,
                        numbers.size() > 1 ? fmt::format("[{}]", number) : number, after);
  }
  return text;
}

std::string fold_ranks(std::span<const int> ranks, std::span<const std::string> hosts) {
  std::string text;
  if (ranks.size() <= kMostListed) {
    for (const int rank : ranks) text += fmt::format("{}rank {}@{}", text.empty() ? "" : ", ", rank, hosts[rank]);
    return text;
  }
  std::vector<std::string> theirs;
  for (const int rank : ranks) theirs.push_back(hosts[rank]);
  return fmt::format("ranks {} on {}", number_ranges(ranks), fold_hosts(theirs));
}

std::vector<RanksWithText> group_ranks(std::span<const std::string> texts) {
  std::vector<RanksWithText> groups;
  std::map<std::string_view, size_t> index;
  for (size_t r = 0; r < texts.size(); ++r) {
    const auto [group, is_new] = index.try_emplace(texts[r], groups.size());
    if (is_new) groups.push_back({.text = texts[r]});
    groups[group->second].ranks.push_back(static_cast<int>(r));
  }
  return groups;
}

}  // namespace lockstep
