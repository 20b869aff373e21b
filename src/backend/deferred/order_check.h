// The happens-before relation between several timelines, by vector clocks, and the memory accesses that it must order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

// For each timeline, how many of its steps come before a certain point (Mattern 1988).
class VectorClock {
 public:
  int64_t of(size_t timeline) const { return timeline < ticks_.size() ? ticks_[timeline] : 0; }
  // Afterwards, everything before `other` also comes before this point.
  void join(const VectorClock& other);
  void tick(size_t timeline);

 private:
  std::vector<int64_t> ticks_;
};

struct MemoryRange {
  const void* begin = nullptr;
  size_t bytes = 0;
};

// One use of memory by a step of a timeline.
struct Access {
  size_t timeline = 0;
  int64_t tick = 0;
  std::shared_ptr<const std::string> what;  // for messages; null: none
  bool before(const VectorClock& point) const { return tick <= point.of(timeline); }
};

// Records which step last used which bytes. Not thread-safe.
class OrderCheck {
 public:
  // Records `access` at `point`, which includes its own tick. Throws Error(internal) if an earlier access that
  // conflicts with it does not come before that point.
  void read(const MemoryRange& range, const Access& access, const VectorClock& point);
  void write(const MemoryRange& range, const Access& access, const VectorClock& point);

 private:
  struct Cell {
    uintptr_t end = 0;
    Access writer;
    std::vector<Access> readers;  // the last reader of each timeline since that write
  };
  using Cells = std::map<uintptr_t, Cell>;  // by first byte; they do not overlap

  void split(uintptr_t at);
  // Calls body(cell) for cells that cover the range exactly.
  template <class Body>
  void for_each(const MemoryRange& range, const Body& body);

  Cells cells_;
};

}  // namespace lockstep
