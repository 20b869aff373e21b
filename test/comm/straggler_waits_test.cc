#include "comm/transport/straggler_waits.h"

#include "test/catch.h"

using namespace lockstep;

TEST_CASE("the time between two updates counts for the one rank that was missing at both") {
  StragglerWaits waits(3);
  waits.update(-1, 10.0);
  waits.update(2, 11.0);
  waits.update(2, 11.5);
  waits.update(2, 12.5);
  waits.update(0, 14.5);  // rank 2's message has arrived at some time before
  waits.update(0, 15.0);
  waits.update(-1, 16.0);
  waits.update(0, 17.0);
  CHECK(waits.seconds() == std::vector<double>{0.5, 0, 1.5});
}
