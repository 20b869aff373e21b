#include "comm/supervision/local_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "lockstep/base/parse_number.h"
#include "lockstep/base/proc.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct LocalRank {
  int process = 0;
  char state = '?';  // as in ProcessStatus
  bool runs() const { return state != 'T' && state != 'Z'; }
};

// Returns the processes that run this program in this job, by rank.
std::map<int, LocalRank> local_ranks(const std::string& job, const std::string& proc) {
  std::error_code error;
  const fs::path program = fs::read_symlink(fs::path(proc) / "self/exe", error);
  std::map<int, LocalRank> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(proc, error)) {
    const auto process = parse_number<int>(entry.path().filename().string());
    if (!process || fs::read_symlink(entry.path() / "exe", error) != program) continue;
    const auto rank = parse_number<int>(process_variable(entry.path(), "PMIX_RANK").value_or(""));
    if (!rank || process_variable(entry.path(), "PMIX_NAMESPACE") != job) continue;
    found[*rank] = {*process, process_status(entry.path()).value_or(ProcessStatus{}).state};
  }
  return found;
}

}  // namespace

std::string describe_local_ranks(const EnvironmentLookup& environment, const std::string& proc) {
  const auto job = environment("PMIX_NAMESPACE");
  if (!job) return "which rank is missing cannot be known before MPI has started: see which of them wrote no log";
  const std::map<int, LocalRank> ranks = local_ranks(*job, proc);
  std::string text;
  for (const auto& [rank, r] : ranks) {
    if (r.runs()) continue;
    text += fmt::format("{}rank {} is {} (process {})", text.empty() ? "" : ", ", rank,
                        r.state == 'T' ? "suspended" : "dead", r.process);
  }
  const int expected = parse_number<int>(environment("OMPI_COMM_WORLD_LOCAL_SIZE").value_or("")).value_or(0);
  const int missing = expected - static_cast<int>(ranks.size());
  if (missing > 0) {
    std::string present;
    for (const auto& [rank, r] : ranks) present += fmt::format("{}{}", present.empty() ? "" : ", ", rank);
    text += fmt::format("{}{} of {} ranks of this host do not run this program (those that do: {})",
                        text.empty() ? "" : ", ", missing, expected, present);
  }
  if (!text.empty()) return text;
  return fmt::format("all {} ranks of this host are alive: look at the other hosts and the network", ranks.size());
}

bool is_lowest_local_rank(const EnvironmentLookup& environment, const std::string& proc) {
  const auto job = environment("PMIX_NAMESPACE");
  const auto mine = parse_number<int>(environment("PMIX_RANK").value_or(""));
  if (!job || !mine) return true;
  const std::map<int, LocalRank> ranks = local_ranks(*job, proc);
  return std::ranges::none_of(ranks, [&](const auto& rank) { return rank.first < *mine && rank.second.runs(); });
}

}  // namespace lockstep
