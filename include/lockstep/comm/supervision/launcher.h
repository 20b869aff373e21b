// Checks whether the launcher and MPI agree on the number of processes. All functions depend only on the environment,
// so they may be called before and after MPI_Init.
#pragma once

#include <optional>
#include <string>

#include "lockstep/base/environment.h"

namespace lockstep {

// The number of processes that the launcher claims to have started, and the variable that says so. Absent without a
// launcher.
//
// mpirun's variable takes precedence, because under mpirun Slurm's variables describe mpirun's daemons. Slurm's
// variables count only inside a step that srun started, because the shell of sbatch or salloc also has SLURM_NTASKS and
// SLURM_PROCID=0. The count of the step takes precedence over that of the job.
struct LaunchClaim {
  int processes = 1;
  std::string variable;
};
std::optional<LaunchClaim> launch_claim(const EnvironmentLookup& environment);

// Returns an error message if MPI sees only this process (`mpi_size` is 1) although the launcher started several. Each
// of them would act as rank 0 and write the same files. After MPI_Init, pass the size of MPI_COMM_WORLD; a program that
// never calls MPI_Init passes 1.
std::optional<std::string> launcher_mismatch(int mpi_size, const EnvironmentLookup& environment);

// Returns whether this process runs in a step of srun without an MPI launcher: in the shell of `srun --pty`, or as a
// task of srun without --mpi=pmix. Open MPI would treat it as one of its processes, fail to connect to a server, and
// exit in MPI_Init.
bool alone_in_slurm_step(const EnvironmentLookup& environment);

}  // namespace lockstep
