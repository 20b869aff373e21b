// Whether the launcher and MPI agree on the number of processes. Pure functions of the environment, usable before and
// after MPI has started.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace lockstep {

// The value of an environment variable, if it is set.
using EnvironmentLookup = std::function<std::optional<std::string>(const char* name)>;
EnvironmentLookup process_environment();

// How many processes the launcher says it started, and which variable says so. None without a launcher.
//
// mpirun's own variable comes first: under it, Slurm's describe its daemons. Slurm counts only inside a step that srun
// started, since the shell of sbatch or salloc also has SLURM_NTASKS and SLURM_PROCID=0; the step's count comes before
// the job's.
struct LaunchClaim {
  int processes = 1;
  std::string variable;
};
std::optional<LaunchClaim> launch_claim(const EnvironmentLookup& environment);

// The message to refuse with when this process is alone (`mpi_size` 1) though the launcher started several: every one
// of them would take itself for rank 0 and write the same files. Whoever knows the size only after MPI_Init passes it;
// a program that never starts MPI passes 1.
std::optional<std::string> launcher_mismatch(int mpi_size, const EnvironmentLookup& environment);

// A process in a step of srun that no launcher of MPI's own started: the shell of `srun --pty`, or a task of srun
// without --mpi=pmix. Open MPI takes it for one of its own, finds nobody to connect to and ends it in MPI_Init.
bool alone_in_slurm_step(const EnvironmentLookup& environment);

}  // namespace lockstep
