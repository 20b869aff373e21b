#include "comm/supervision/local_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>

#include "lockstep/base/parse_number.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the value of a variable in the contents of an environ file: "A=1\0B=2\0".
std::optional<std::string> variable(const std::string& text, std::string_view name) {
  const std::string wanted = fmt::format("{}=", name);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\0', begin), text.size());
    if (text.compare(begin, wanted.size(), wanted) == 0) {
      return text.substr(begin + wanted.size(), end - begin - wanted.size());
    }
    begin = end + 1;
  }
  return std::nullopt;
}

struct LocalRank {
  int process = 0;
  char state = '?';  // as in /proc/PID/stat
};

// The state follows the program's name in parentheses. The name may contain any character, so the last parenthesis
// counts.
char state_of(const fs::path& process) {
  const std::string stat = contents(process / "stat");
  const size_t end = stat.rfind(") ");
  return end == std::string::npos || end + 2 >= stat.size() ? '?' : stat[end + 2];
}

// Returns the processes that run this program in this job, by rank.
std::map<int, LocalRank> local_ranks(const std::string& job, const std::string& proc) {
  std::error_code error;
  const fs::path program = fs::read_symlink(fs::path(proc) / "self/exe", error);
  std::map<int, LocalRank> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(proc, error)) {
    const auto process = parse_number<int>(entry.path().filename().string());
    if (!process || fs::read_symlink(entry.path() / "exe", error) != program) continue;
    const std::string environ = contents(entry.path() / "environ");
    const auto rank = parse_number<int>(variable(environ, "PMIX_RANK").value_or(""));
    if (rank && variable(environ, "PMIX_NAMESPACE") == job) found[*rank] = {*process, state_of(entry.path())};
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
    if (r.state != 'T' && r.state != 'Z') continue;
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

}  // namespace lockstep
