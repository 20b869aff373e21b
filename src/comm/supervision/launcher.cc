#include "lockstep/comm/supervision/launcher.h"

#include <fmt/format.h>

#include <cstdint>

#include "lockstep/base/parse_number.h"

namespace lockstep {
namespace {

// Slurm reserves the step numbers from here on for steps that srun did not start (batch shell, salloc's shell, extern).
constexpr int64_t kFirstSpecialStep = 0xfffffff0;

std::optional<int64_t> number(const EnvironmentLookup& environment, const char* name) {
  const std::optional<std::string> text = environment(name);
  return text ? parse_number<int64_t>(*text) : std::nullopt;
}

std::optional<LaunchClaim> claim(const EnvironmentLookup& environment, const char* name) {
  const std::optional<int64_t> processes = number(environment, name);
  if (!processes || *processes < 1 || *processes > INT32_MAX) return std::nullopt;
  return LaunchClaim{static_cast<int>(*processes), name};
}

bool is_srun_step(const EnvironmentLookup& environment) {
  if (const auto step = number(environment, "SLURM_STEP_ID")) return *step < kFirstSpecialStep;
  return environment("SLURM_STEP_NUM_TASKS").has_value() || number(environment, "SLURM_PROCID").value_or(0) > 0;
}

}  // namespace

std::optional<LaunchClaim> launch_claim(const EnvironmentLookup& environment) {
  if (auto found = claim(environment, "OMPI_COMM_WORLD_SIZE")) return found;
  if (is_srun_step(environment)) {
    for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
      if (auto found = claim(environment, name)) return found;
    }
  }
  for (const char* name : {"PMI_SIZE", "MV2_COMM_WORLD_SIZE"}) {
    if (auto found = claim(environment, name)) return found;
  }
  return std::nullopt;
}

std::optional<std::string> launcher_mismatch(int mpi_size, const EnvironmentLookup& environment) {
  if (mpi_size != 1) return std::nullopt;
  const std::optional<LaunchClaim> claim = launch_claim(environment);
  if (!claim || claim->processes == 1) return std::nullopt;
  const bool slurm = claim->variable.starts_with("SLURM");
  return fmt::format(
      "the launcher started {} processes ({}={}), but MPI knows of this one alone, so each would train by itself and "
      "write the same files. {}, or unset {} to run a single process on purpose",
      claim->processes, claim->variable, claim->processes,
      slurm ? "Start with 'srun --mpi=pmix' (see 'srun --mpi=list') or with mpirun inside the allocation"
            : "Start with the mpirun that belongs to the MPI library this program is linked with (see 'ldd')",
      claim->variable);
}

bool alone_in_slurm_step(const EnvironmentLookup& environment) {
  if (!environment("SLURM_STEP_ID")) return false;
  // These are set by mpirun, srun --mpi=pmix and srun --mpi=pmi2.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMIX_RANK", "PMI_FD", "PMI_RANK"}) {
    if (environment(name)) return false;
  }
  return true;
}

}  // namespace lockstep
