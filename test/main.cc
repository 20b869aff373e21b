// The main program of all unit tests that need no MPI.
#include "test/runner.h"

int main(int argc, char** argv) { return lockstep::testing::run_catch(argc, argv); }
