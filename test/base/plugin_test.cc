#include "lockstep/base/plugin.h"

#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

TEST_CASE("a plugin that is not there is a configuration error that names it") {
  CHECK(!find_plugin("lockstep_nothing.so"));
  try {
    plugin_function("lockstep_nothing.so", "anything");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::config);
    CHECK_THAT(error.what(), ContainsSubstring("lockstep_nothing.so is not installed"));
  }
}

TEST_CASE("a plugin that is no shared object is an error with the loader's reason") {
  CHECK_THROWS_WITH(plugin_function("/proc/self/status", "anything"), ContainsSubstring("/proc/self/status"));
}
