// One of several cases that a test computes in a loop, where an exception must not hide what the other cases do.
#pragma once

#include <exception>
#include <string>

#include "test/catch.h"

namespace lockstep::test {

// An exception fails the test with the name of the case; the caller goes on with the next one.
template <class Check>
void check_case(const std::string& name, const Check& check) {
  INFO(name);
  try {
    check();
  } catch (const std::exception& error) {
    FAIL_CHECK(error.what());
  }
}

}  // namespace lockstep::test
