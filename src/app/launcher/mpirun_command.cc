#include "app/launcher/mpirun_command.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <sstream>

#include "app/rank_mapping.h"
#include "lockstep/base/error.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

constexpr int kMostRanks = 1 << 20;

constexpr std::array kOptions = {
    RunOption{"-np", "N", "Number of ranks; may be left out under Slurm and with --hostfile"},
    RunOption{"--hostfile", "FILE", "Hosts, one a line: node7 slots=2"},
    RunOption{"--mpirun", "PROGRAM", "Another mpirun than the first in PATH"},
    RunOption{"--mca", "NAME VALUE", "A parameter of Open MPI; passed on to mpirun"},
    RunOption{"-x", "NAME[=VALUE]", "A variable for ranks on other hosts; passed on to mpirun"},
    RunOption{"--print", "", "Print the command and leave"},
};

const RunOption* find_option(std::string_view word) {
  if (word == "-n" || word == "--np") word = "-np";
  const auto* const found = std::ranges::find(kOptions, word, &RunOption::flag);
  return found == kOptions.end() ? nullptr : found;
}

int parse_ranks(const std::string& text) {
  const auto ranks = parse_number<int>(text);
  if (ranks && *ranks >= 1 && *ranks <= kMostRanks) return *ranks;
  fail(ExitCode::config, "-np takes a number from 1 to {}, not '{}'", kMostRanks, printable(text));
}

// Returns the number of ranks on each host if it is the same on all, otherwise 0. `ranks` is that of the job; 0: all
// slots.
int ranks_of_each_host(const std::string& hostfile, int ranks) {
  std::map<std::string, int64_t> slots;
  std::istringstream lines(hostfile);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host, word;
    if (!(words >> host)) continue;
    int listed = 1;
    while (words >> word) {
      if (word.starts_with("slots=")) listed = parse_number<int>(std::string_view(word).substr(6)).value_or(0);
    }
    slots[host] += listed;
  }
  if (slots.empty()) return 0;
  const int64_t first = slots.begin()->second;
  const bool equal = std::ranges::all_of(slots, [&](const auto& host) { return host.second == first; });
  const bool all = ranks == 0 || ranks == first * std::ssize(slots);
  return equal && all && first <= kMostRanks ? static_cast<int>(first) : 0;
}

// Returns the options that give each of `ranks` ranks of a host cores of its own. If that is impossible, mpirun binds
// no rank, and the ranks divide the cores themselves.
std::vector<std::string> binding(const LaunchSite& site, int ranks) {
  const bool restricted = site.usable_processors < site.processors.size();
  if (ranks < 1 || site.processors.empty() || restricted || ranks > count_cores(site.processors)) {
    return {"--bind-to", "none"};
  }
  const auto [map, cores] = map_ranks(site.processors, ranks);
  return {"--map-by", fmt::format("{}:PE={}", map, cores), "--bind-to", "core"};
}

// As in scripts/slurm/mpirun.sbatch: like Slurm, mpirun counts hardware threads here.
std::vector<std::string> slurm_binding(const LaunchSite& site) {
  return {"--use-hwthread-cpus", "--map-by", "slot:PE=" + site.environment("SLURM_CPUS_PER_TASK").value_or("1"),
          "--bind-to", "hwthread"};
}

// Returns whether mpirun may take hosts from PBS, LSF or Grid Engine, or the user has chosen interfaces.
bool may_use_network(const RunRequest& request, const LaunchSite& site) {
  for (const char* variable :
       {"PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude"}) {
    if (site.environment(variable)) return true;
  }
  return std::ranges::any_of(request.passed_on, [](const std::string& word) { return word.starts_with("btl"); });
}

void append(std::vector<std::string>& words, std::vector<std::string> more) {
  std::ranges::move(more, std::back_inserter(words));
}

std::string quoted(const std::string& word) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./:=,+@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::span<const RunOption> run_options() { return kOptions; }

RunRequest parse_run_request(std::span<const std::string> arguments) {
  RunRequest request;
  size_t i = 0;
  while (i < arguments.size()) {
    const std::string& word = arguments[i];
    const RunOption* const option = find_option(word);
    if (!option) break;
    const auto values = option->values.empty() ? 0 : std::ranges::count(option->values, ' ') + 1;
    if (i + values >= arguments.size()) fail(ExitCode::config, "{} takes {}", word, option->values);
    if (option->flag == "-np") {
      request.ranks = parse_ranks(arguments[i + 1]);
    } else if (option->flag == "--hostfile") {
      request.hostfile = arguments[i + 1];
    } else if (option->flag == "--mpirun") {
      request.mpirun = arguments[i + 1];
    } else if (option->flag == "--print") {
      request.print_only = true;
    } else {
      append(request.passed_on, {arguments.begin() + i, arguments.begin() + i + values + 1});
    }
    i += values + 1;
  }
  for (const char* word : {"--", "trainer"}) {
    if (i < arguments.size() && arguments[i] == word) ++i;
  }
  request.arguments.assign(arguments.begin() + i, arguments.end());
  return request;
}

MpirunCommand mpirun_command(const RunRequest& request, const LaunchSite& site) {
  for (const char* rank : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    if (!site.environment(rank)) continue;
    fail(ExitCode::config, "{} is set: lockstep run starts mpirun itself, so start it once, not under mpirun or srun",
         rank);
  }
  const bool slurm = site.environment("SLURM_JOB_ID").has_value();
  if (request.ranks == 0 && request.hostfile.empty() && !slurm) {
    fail(ExitCode::config,
         "how many ranks? Give -np N, or --hostfile FILE, before the arguments of the trainer; see lockstep run "
         "--help");
  }
  MpirunCommand command;
  if (site.root) command.environment = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
  // Suppresses the lines of mpirun 4 about an exit code other than 0. Its option --quiet is an error in mpirun 5.
  if (!site.environment("OMPI_MCA_orte_execute_quiet")) {
    command.environment.emplace_back("OMPI_MCA_orte_execute_quiet=1");
  }
  std::vector<std::string>& words = command.words;
  words = {request.mpirun};
  if (request.ranks > 0) append(words, {"-np", std::to_string(request.ranks)});
  if (!request.hostfile.empty()) {
    append(words, {"--hostfile", request.hostfile});
    append(words, binding(site, ranks_of_each_host(site.hostfile_text, request.ranks)));
  } else if (slurm) {
    append(words, slurm_binding(site));
  } else {
    command.local_ranks = request.ranks;
    // Open MPI 5.0 otherwise prints a line a rank about network interfaces that the ranks of one host do not need.
    if (site.mpirun_5 && !may_use_network(request, site)) {
      command.environment.emplace_back("OMPI_MCA_btl_tcp_if_include=lo");
    }
    if (!site.processors.empty() && request.ranks > count_cores(site.processors)) append(words, {"--oversubscribe"});
    append(words, binding(site, request.ranks));
  }
  append(words, request.passed_on);
  append(words, {site.trainer});
  append(words, request.arguments);
  return command;
}

std::string MpirunCommand::text() const {
  std::string line;
  for (const auto* part : {&environment, &words}) {
    for (const std::string& word : *part) (line += line.empty() ? "" : " ") += quoted(word);
  }
  return line;
}

}  // namespace lockstep
