#include "app/version.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>

#include "app/commit.h"  // written by the build
#include "lockstep/backend/cpu_library.h"
#include "lockstep/comm/group/mpi_session.h"
#include "lockstep/io/hdf5.h"

namespace lockstep {

std::string mpi_version() {
  const std::string all = MpiSession::library_version();  // "Open MPI v4.1.4, package: ..."
  return all.substr(0, all.find(','));
}

std::string version_text() {
  return fmt::format(
      "trainer (Lockstep) {}\n"
      "commit: {}\n"
      "libraries: {}, {}, {}, glibc {}\n"
      "compiler: {}, {}\n",
      LOCKSTEP_VERSION, LOCKSTEP_COMMIT, mpi_version(), hdf5_version(), cpu_library_version(), ::gnu_get_libc_version(),
      LOCKSTEP_COMPILER, LOCKSTEP_BUILD_TYPE);
}

std::string program_version() { return LOCKSTEP_VERSION; }
std::string program_commit() { return LOCKSTEP_COMMIT; }

}  // namespace lockstep
