// Names of ranks and hosts in messages, short enough for a thousand of them.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace lockstep {

// Folds names that differ only in their last number: "login, node[001-128,130]". Sorted; each name once.
std::string fold_hosts(std::span<const std::string> hosts);

// "rank 0@node1, rank 3@node2", or for more than four ranks "ranks 0-63,66 on node[1-2]". `ranks` are sorted; `hosts`
// are indexed by rank.
std::string fold_ranks(std::span<const int> ranks, std::span<const std::string> hosts);

// The most ranks of a job that has a line for each of them in tables. Beyond that, ranks with the same text share one.
inline constexpr int kMostRankLines = 16;

// Ranks with the same text.
struct RanksWithText {
  std::string text;
  std::vector<int> ranks;
};
// One group per distinct text, in the order of the first rank of each. `texts` are indexed by rank.
std::vector<RanksWithText> group_ranks(std::span<const std::string> texts);

}  // namespace lockstep
