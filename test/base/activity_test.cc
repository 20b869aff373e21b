#include "lockstep/base/activity.h"

#include "test/catch.h"

using namespace lockstep;

TEST_CASE("what a thread is busy with is described while it lasts, and only then") {
  Activity activity("loader thread");
  CHECK(describe_activities().empty());
  activity.begin([] { return std::string("a.tfrecord record 7"); });
  REQUIRE(describe_activities().size() == 1);
  CHECK_THAT(describe_activities().front(),
             Catch::Matchers::StartsWith("loader thread: a.tfrecord record 7, for ") && ContainsSubstring(" s"));
  CHECK(describe_activities(3600).empty());  // it has not lasted for an hour
  activity.begin([] { return std::string("another"); });
  CHECK_THAT(describe_activities().front(), ContainsSubstring("another"));
  activity.end();
  CHECK(describe_activities().empty());
}

TEST_CASE("an entry goes away with its thread's object") {
  {
    Activity activity("loader thread");
    activity.begin([] { return std::string("x"); });
    Activity other("another thread");
    other.begin([] { return std::string("y"); });
    CHECK(describe_activities().size() == 2);
  }
  CHECK(describe_activities().empty());
}
