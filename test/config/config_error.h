// For tests of configuration errors.
#pragma once

#include <string>

#include "lockstep/base/error.h"
#include "test/catch.h"

namespace lockstep {

// The message of the configuration error that `action` throws; fails the test when it throws none, or another.
template <class Action>
std::string config_error(Action action) {
  try {
    action();
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::config);
    return e.what();
  }
  FAIL_CHECK("nothing was thrown");
  return {};
}

}  // namespace lockstep
