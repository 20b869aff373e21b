// The one compilation of Catch2's runner (slow with version 2), shared by all unit test programs.
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_RUNNER
#endif
#include "test/catch.h"

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
