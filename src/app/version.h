// The output of `trainer --version`: the program and the libraries that it runs with.
#pragma once

#include <string>

namespace lockstep {

// Returns name and version of the loaded MPI library, e.g. "Open MPI v4.1.4"; may be called before MPI starts.
std::string mpi_version();

// "trainer (Lockstep) VERSION", then one line each for the commit, the libraries and the compiler; ends with a line
// feed.
std::string version_text();

// "0.1.0", and the commit that was built.
std::string program_version();
std::string program_commit();

}  // namespace lockstep
