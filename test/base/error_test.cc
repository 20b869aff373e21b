#include "lockstep/base/error.h"

#include "test/catch.h"

using namespace lockstep;

TEST_CASE("fail carries the exit code, the message and the place") {
  try {
    fail(ExitCode::data, "{}: record {} has a wrong checksum", "a.tfrecord", 7);
    FAIL("fail returned");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::data);
    CHECK(std::string(e.what()) == "a.tfrecord: record 7 has a wrong checksum");
    CHECK_THAT(std::string(e.where().file_name()), ContainsSubstring("error_test.cc"));
  }
}

TEST_CASE("require throws an internal error only when the condition is false") {
  CHECK_NOTHROW(require(true, "never"));
  try {
    require(false, "size {}", 3);
    FAIL("require returned");
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::internal);
    CHECK_THAT(message_of(e), ContainsSubstring("size 3 [") && ContainsSubstring("error_test.cc:"));
  }
  CHECK(message_of(Error(ExitCode::data, "a.tfrecord: is empty")) == "a.tfrecord: is empty");
}
