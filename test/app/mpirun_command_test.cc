#include "app/launcher/mpirun_command.h"

#include <map>

#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

using Variables = std::map<std::string, std::string>;

// A host with `nodes` NUMA nodes of four cores each.
LaunchSite site_of(int nodes, Variables variables = {}) {
  LaunchSite site{.trainer = "/bin/trainer",
                  .processors = {},
                  .usable_processors = static_cast<size_t>(4 * nodes),
                  .root = false,
                  .mpirun_5 = false,
                  .hostfile_text = {},
                  .environment = [variables](const char* name) -> std::optional<std::string> {
                    const auto found = variables.find(name);
                    return found == variables.end() ? std::nullopt : std::optional(found->second);
                  }};
  for (int cpu = 0; cpu < 4 * nodes; ++cpu) site.processors.push_back({.number = cpu, .core = cpu, .node = cpu / 4});
  return site;
}

std::string command(std::vector<std::string> arguments, const LaunchSite& site) {
  return mpirun_command(parse_run_request(arguments), site).text();
}

}  // namespace

TEST_CASE("each rank gets cores of its own, within a NUMA node where they divide evenly") {
  CHECK(command({"-np", "4", "--config", "a.toml"}, site_of(2)) ==
        "OMPI_MCA_orte_execute_quiet=1 mpirun -np 4 --map-by ppr:2:numa:PE=2 --bind-to core /bin/trainer --config "
        "a.toml");
  CHECK(command({"-n", "3", "--config", "a.toml"}, site_of(2)) ==
        "OMPI_MCA_orte_execute_quiet=1 mpirun -np 3 --map-by ppr:3:node:PE=2 --bind-to core /bin/trainer --config "
        "a.toml");
}

TEST_CASE("ranks that cannot have cores of their own are not bound") {
  CHECK(command({"-np", "5", "x"}, site_of(1)) ==
        "OMPI_MCA_orte_execute_quiet=1 mpirun -np 5 --oversubscribe --bind-to none /bin/trainer x");
  LaunchSite restricted = site_of(1);
  restricted.usable_processors = 2;
  CHECK(command({"-np", "2", "x"}, restricted) ==
        "OMPI_MCA_orte_execute_quiet=1 mpirun -np 2 --bind-to none /bin/trainer x");
  LaunchSite unknown = site_of(0);
  CHECK(command({"-np", "2", "x"}, unknown) ==
        "OMPI_MCA_orte_execute_quiet=1 mpirun -np 2 --bind-to none /bin/trainer x");
}

TEST_CASE("mpirun 5 gets no network for the ranks of one host, unless the user chooses one") {
  const auto keeps_to_one_host = [](std::vector<std::string> arguments, Variables variables = {}) {
    LaunchSite site = site_of(1, std::move(variables));
    site.hostfile_text = "a slots=2\nb slots=2\n";
    site.mpirun_5 = true;
    return command(std::move(arguments), site).find(" OMPI_MCA_btl_tcp_if_include=lo mpirun") != std::string::npos;
  };
  CHECK(keeps_to_one_host({"-np", "2", "x"}));
  CHECK_FALSE(keeps_to_one_host({"--hostfile", "f", "x"}));
  for (const char* hosts_known_by : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE"})
    CHECK_FALSE(keeps_to_one_host({"-np", "2", "x"}, {{hosts_known_by, "7"}}));
  CHECK_FALSE(keeps_to_one_host({"-np", "2", "x"}, {{"OMPI_MCA_btl_tcp_if_include", "eth0"}}));
  CHECK_FALSE(keeps_to_one_host({"-np", "2", "x"}, {{"OMPI_MCA_btl_tcp_if_exclude", "lo"}}));
  CHECK_FALSE(keeps_to_one_host({"-np", "2", "--mca", "btl_tcp_if_include", "eth0", "x"}));
}

TEST_CASE("root gets the variables that mpirun asks for") {
  LaunchSite site = site_of(1);
  site.root = true;
  CHECK(command({"-np", "1", "x"}, site) ==
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_orte_execute_quiet=1 mpirun -np 1 --map-by "
        "ppr:1:node:PE=4 "
        "--bind-to core /bin/trainer x");
}

TEST_CASE("who wants to hear mpirun has said so in the environment") {
  CHECK(command({"-np", "5", "x"}, site_of(1, {{"OMPI_MCA_orte_execute_quiet", "0"}})) ==
        "mpirun -np 5 --oversubscribe --bind-to none /bin/trainer x");
}

TEST_CASE("Slurm and a hostfile say how many ranks there are") {
  CHECK(
      command({"x"}, site_of(1, {{"SLURM_JOB_ID", "7"}, {"SLURM_CPUS_PER_TASK", "2"}})) ==
      "OMPI_MCA_orte_execute_quiet=1 mpirun --use-hwthread-cpus --map-by slot:PE=2 --bind-to hwthread /bin/trainer x");
  LaunchSite site = site_of(1);
  site.hostfile_text = "a slots=2  # one\n\nb slots=2\n";
  CHECK(command({"--hostfile", "hosts", "x"}, site) ==
        "OMPI_MCA_orte_execute_quiet=1 mpirun --hostfile hosts --map-by ppr:2:node:PE=2 --bind-to core /bin/trainer x");
  CHECK_THAT(command({"-np", "4", "--hostfile", "hosts", "x"}, site), ContainsSubstring("ppr:2:node:PE=2"));
  CHECK_THAT(command({"-np", "3", "--hostfile", "hosts", "x"}, site),
             ContainsSubstring("-np 3 --hostfile hosts --bind-to none"));
  site.hostfile_text = "a slots=2147483647\na slots=2147483647\na slots=4\n";
  CHECK_THAT(command({"--hostfile", "hosts", "x"}, site), ContainsSubstring("--bind-to none"));
  site.hostfile_text = "a slots=2\nb\n";
  CHECK_THAT(command({"--hostfile", "hosts", "x"}, site), ContainsSubstring("--bind-to none"));
}

TEST_CASE("the arguments of the trainer begin after the options of run") {
  const LaunchSite site = site_of(1);
  const std::string usual = command({"-np", "1", "--config", "a b.toml"}, site);
  CHECK_THAT(usual, ContainsSubstring("/bin/trainer --config 'a b.toml'"));
  CHECK(command({"-np", "1", "--", "--config", "a b.toml"}, site) == usual);
  CHECK(command({"-np", "1", "--", "trainer", "--config", "a b.toml"}, site) == usual);
  CHECK_THAT(command({"-np", "1", "--mca", "btl", "self,tcp", "-x", "HOME", "--", "-np"}, site),
             ContainsSubstring("--mca btl self,tcp -x HOME /bin/trainer -np"));
  CHECK(parse_run_request(std::vector<std::string>{"--print", "-np", "2"}).print_only);
}

TEST_CASE("a number of ranks that is missing or wrong, and a launcher in a launcher, are errors") {
  const auto message = [](std::vector<std::string> arguments, const Variables& variables) {
    try {
      return command(std::move(arguments), site_of(1, variables));
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::config);
      return std::string(error.what());
    }
  };
  CHECK_THAT(message({"x"}, {}), ContainsSubstring("how many ranks?"));
  CHECK_THAT(message({"-np", "two"}, {}), ContainsSubstring("-np takes a number from 1 to"));
  CHECK_THAT(message({"-np", "0"}, {}), ContainsSubstring("not '0'"));
  CHECK_THAT(message({"-np"}, {}), ContainsSubstring("-np takes N"));
  CHECK_THAT(message({"-np", "2", "--mca", "btl"}, {}), ContainsSubstring("--mca takes NAME VALUE"));
  CHECK_THAT(message({"-np", "2", "x"}, {{"OMPI_COMM_WORLD_RANK", "0"}}),
             ContainsSubstring("not under mpirun or srun"));
}
