#include "backend/deferred/order_check.h"

#include <array>

#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

// Timelines that do steps and learn of each other.
struct World {
  std::array<VectorClock, 3> clocks;
  OrderCheck check;
  std::array<char, 64> memory{};

  Access step(size_t timeline, const char* name) {
    clocks[timeline].tick(timeline);
    return {timeline, clocks[timeline].of(timeline), std::make_shared<const std::string>(name)};
  }
  MemoryRange bytes(size_t begin, size_t end) const { return {memory.data() + begin, end - begin}; }
  void write(size_t timeline, const char* name, MemoryRange range) {
    const Access access = step(timeline, name);
    check.write(range, access, clocks[timeline]);
  }
  void read(size_t timeline, const char* name, MemoryRange range) {
    const Access access = step(timeline, name);
    check.read(range, access, clocks[timeline]);
  }
  void sees(size_t timeline, size_t other) { clocks[timeline].join(clocks[other]); }
};

}  // namespace

TEST_CASE("steps of one timeline are in order") {
  World w;
  w.write(0, "a", w.bytes(0, 32));
  w.read(0, "b", w.bytes(0, 64));
  w.write(0, "c", w.bytes(16, 48));
}

TEST_CASE("reading what another timeline wrote needs an order between them") {
  World w;
  w.write(0, "fill", w.bytes(0, 32));
  CHECK_THROWS_WITH(w.read(1, "use", w.bytes(31, 40)),
                    ContainsSubstring("use on stream 1 reads what was written by fill on stream 0"));
  w.read(1, "elsewhere", w.bytes(32, 64));
  w.sees(1, 0);
  w.read(1, "use", w.bytes(0, 64));
}

TEST_CASE("overwriting what another timeline reads or wrote needs an order, two readers do not") {
  World w;
  w.read(0, "first", w.bytes(0, 32));
  w.read(1, "second", w.bytes(16, 48));
  CHECK_THROWS_WITH(w.write(2, "fill", w.bytes(0, 8)),
                    ContainsSubstring("overwrites what was read by first on stream 0"));
  w.sees(2, 0);
  w.write(2, "fill", w.bytes(0, 16));
  CHECK_THROWS_WITH(w.write(2, "fill", w.bytes(16, 32)), ContainsSubstring("read by second on stream 1"));
  w.sees(2, 1);
  w.write(2, "fill", w.bytes(16, 64));
  CHECK_THROWS_WITH(w.write(0, "again", w.bytes(0, 64)), ContainsSubstring("overwrites what was written by fill"));
}

TEST_CASE("order is handed on from timeline to timeline") {
  World w;
  w.write(0, "fill", w.bytes(0, 64));
  w.sees(1, 0);
  w.read(1, "copy", w.bytes(0, 64));
  w.sees(2, 1);
  w.write(2, "reuse", w.bytes(0, 64));
}

TEST_CASE("what comes after the point that was seen is not ordered") {
  World w;
  w.write(0, "fill", w.bytes(0, 64));
  w.sees(1, 0);
  w.write(0, "refill", w.bytes(10, 11));
  w.read(1, "use", w.bytes(0, 10));
  CHECK_THROWS_WITH(w.read(1, "use", w.bytes(0, 11)), ContainsSubstring("refill"));
}
