// The one compilation of Catch2's runner, which is slow with version 2.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_RUNNER
#endif
#include "test/runner.h"

#include "test/catch.h"

int lockstep::testing::run_catch(int argc, const char* const* argv) { return Catch::Session().run(argc, argv); }
