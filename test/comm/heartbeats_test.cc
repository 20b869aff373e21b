#include "lockstep/comm/supervision/heartbeats.h"

#include <chrono>
#include <thread>

#include "lockstep/base/clock.h"
#include "test/catch.h"
#include "test/mpi_main.h"

using namespace lockstep;
using lockstep::testing::session;
using lockstep::testing::world;

TEST_CASE("every rank soon knows the position of every other one, and the destructor does not wait long") {
  for (const int bytes : {65536, 1}) {  // to all peers at a time, or to one
    ProgressBoard board;
    double shutdown = 0;
    {
      const Heartbeats heartbeats(session(), board, {.interval_seconds = 0.02, .bytes_per_turn = bytes});
      board.progress(RunPhase::evaluate, 100 + world().rank());
      const double deadline = monotonic_seconds() + 20;
      const auto all_known = [&] {
        const std::vector<RankPosition> known = board.snapshot(false);
        for (int r = 0; r < world().size(); ++r) {
          if (known[static_cast<size_t>(r)].step != 100 + r) return false;
        }
        return true;
      };
      while (!all_known() && monotonic_seconds() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      CHECK(all_known());
      world().barrier({"the shutdown"});
      shutdown = monotonic_seconds();
    }
    CHECK(monotonic_seconds() - shutdown < 4);  // the limit is five seconds
  }
}
