// Catch2's runner between MPI_Init and MPI_Finalize. Rank 0 reports as usual, the others only what fails on them; all
// return the same exit code.
#include "test/mpi_main.h"

#include <iostream>
#include <sstream>
#include <vector>

#include "lockstep/comm/group/mpi_session.h"
#include "test/runner.h"

namespace lockstep::testing {
namespace {
const MpiSession* the_session = nullptr;
ProcessGroup* the_world = nullptr;
}  // namespace
const MpiSession& session() { return *the_session; }
ProcessGroup& world() { return *the_world; }
}  // namespace lockstep::testing

namespace {

int run_cases(int argc, char** argv) {
  std::vector<const char*> arguments(argv, argv + argc);
  arguments.insert(arguments.end(), {"--order", "decl"});  // newer versions shuffle, each rank its own way
  return lockstep::testing::run_catch(static_cast<int>(arguments.size()), arguments.data());
}

int run_quietly(int rank, int argc, char** argv) {
  std::ostringstream report;
  std::streambuf* console = std::cout.rdbuf(report.rdbuf());
  const int result = run_cases(argc, argv);
  std::cout.rdbuf(console);
  if (result != 0) std::cerr << "rank " << rank << ":\n" << report.str();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::MpiSession session(argc, argv);
  try {
    lockstep::ProcessGroup group(session, {.wait_seconds = 30});
    lockstep::testing::the_session = &session;
    lockstep::testing::the_world = &group;
    int64_t result = group.is_root() ? run_cases(argc, argv) : run_quietly(group.rank(), argc, argv);
    group.all_reduce_max(std::span(&result, 1), {.what = "the result of the tests"});
    session.finish();
    return static_cast<int>(result);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    lockstep::abort_job(1);
  }
}
