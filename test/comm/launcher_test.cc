#include "lockstep/comm/supervision/launcher.h"

#include <map>
#include <vector>

#include "test/catch.h"

using lockstep::EnvironmentLookup;
using lockstep::launch_claim;
using lockstep::launcher_mismatch;

namespace {

using Variables = std::map<std::string, std::string>;

EnvironmentLookup lookup(Variables variables) {
  return [variables = std::move(variables)](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

struct Case {
  std::string situation;
  Variables variables;
  std::string blamed;  // variable that the refusal names; empty: one process is right
};

const std::vector<Case> kCases = {
    {"no launcher", {}, ""},
    {"srun without a common PMI",
     {{"SLURM_JOB_ID", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "2"}},
     "SLURM_NTASKS"},
    {"rank 0 of srun", {{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}, "SLURM_NTASKS"},
    {"a step smaller than the job",
     {{"SLURM_STEP_ID", "3"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "8"}},
     "SLURM_STEP_NUM_TASKS"},
    {"a step of one task in a larger job",
     {{"SLURM_STEP_ID", "3"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "8"}},
     ""},
    {"the shell of sbatch", {{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}, ""},
    {"the shell of salloc", {{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"}}, ""},
    {"the shell of salloc as an interactive step",
     {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}},
     ""},
    {"a later task without a step number", {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "1"}}, "SLURM_NTASKS"},
    {"mpiexec of another MPI", {{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}, "PMI_SIZE"},
    {"mpiexec of another MPI, one process", {{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}, ""},
    {"mpirun_rsh", {{"MV2_COMM_WORLD_SIZE", "3"}}, "MV2_COMM_WORLD_SIZE"},
    {"mpirun of another Open MPI", {{"OMPI_COMM_WORLD_SIZE", "2"}}, "OMPI_COMM_WORLD_SIZE"},
    {"mpirun of one rank whose daemons are a step of two",
     {{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}},
     ""},
    {"srun under PMI-2 is blamed by Slurm's name",
     {{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_SIZE", "4"}},
     "SLURM_STEP_NUM_TASKS"},
    {"a value that is no number", {{"PMI_SIZE", "many"}}, ""},
    {"an empty value", {{"OMPI_COMM_WORLD_SIZE", ""}}, ""},
};

}  // namespace

TEST_CASE("a single process is refused only when its launcher started several") {
  for (const Case& each : kCases) {
    INFO(each.situation);
    const std::optional<std::string> message = launcher_mismatch(1, lookup(each.variables));
    CHECK(message.has_value() == !each.blamed.empty());
    if (message)
      CHECK_THAT(*message, ContainsSubstring("(" + each.blamed + "=" + each.variables.at(each.blamed) + ")"));
  }
}

TEST_CASE("the refusal names the way out") {
  CHECK_THAT(*launcher_mismatch(1, lookup({{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "4"}})),
             ContainsSubstring("srun --mpi=pmix") && ContainsSubstring("unset SLURM_NTASKS"));
  CHECK_THAT(*launcher_mismatch(1, lookup({{"PMI_SIZE", "2"}})), ContainsSubstring("mpirun that belongs to the MPI"));
}

TEST_CASE("several ranks are never refused, whatever the environment says") {
  for (const Case& each : kCases) CHECK_FALSE(launcher_mismatch(2, lookup(each.variables)));
}

TEST_CASE("the claim gives the number of processes before MPI has started") {
  const auto claim = launch_claim(lookup({{"OMPI_COMM_WORLD_SIZE", "3"}, {"PMI_SIZE", "2"}}));
  REQUIRE(claim);
  CHECK(claim->processes == 3);
  CHECK(claim->variable == "OMPI_COMM_WORLD_SIZE");
  CHECK_FALSE(launch_claim(lookup({})));
}

TEST_CASE("the process environment is read as it is") {
  REQUIRE(setenv("LOCKSTEP_LAUNCHER_TEST", "value", 1) == 0);
  CHECK(lockstep::process_environment()("LOCKSTEP_LAUNCHER_TEST") == "value");
  CHECK_FALSE(lockstep::process_environment()("LOCKSTEP_LAUNCHER_TEST_UNSET"));
}

TEST_CASE("a process of a Slurm step that no launcher of MPI started is told from those that one did") {
  CHECK(lockstep::alone_in_slurm_step(lookup({{"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "1"}})));
  CHECK_FALSE(lockstep::alone_in_slurm_step(lookup({{"SLURM_JOB_ID", "7"}})));
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMIX_RANK", "PMI_FD", "PMI_RANK"}) {
    INFO(name);
    CHECK_FALSE(lockstep::alone_in_slurm_step(lookup({{"SLURM_STEP_ID", "0"}, {name, "1"}})));
  }
}
