// Catch2's runner behind one function, so that the programs which start it do not compile it.
#pragma once

namespace lockstep::testing {

// Runs the cases that the arguments select; returns the exit code.
int run_catch(int argc, const char* const* argv);

}  // namespace lockstep::testing
