#include "backend/deferred/order_check.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

void require_before(const Access& earlier, const Access& later, const VectorClock& point, std::string_view verbs) {
  require(!earlier.what || earlier.before(point),
          "{} on stream {} {} {} on stream {} before it, and nothing orders the two: record an event after the first "
          "and let the second stream wait for it",
          *later.what, later.timeline, verbs, earlier.what ? *earlier.what : "", earlier.timeline);
}

}  // namespace

void VectorClock::join(const VectorClock& other) {
  ticks_.resize(std::max(ticks_.size(), other.ticks_.size()));
  for (size_t i = 0; i < other.ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], other.ticks_[i]);
}

void VectorClock::tick(size_t timeline) {
  if (timeline >= ticks_.size()) ticks_.resize(timeline + 1);
  ++ticks_[timeline];
}

void OrderCheck::split(uintptr_t at) {
  auto next = cells_.upper_bound(at);
  if (next == cells_.begin()) return;
  auto& [begin, cell] = *std::prev(next);
  if (begin == at || cell.end <= at) return;
  Cell tail = cell;
  cell.end = at;
  cells_.emplace_hint(next, at, std::move(tail));
}

template <class Body>
void OrderCheck::for_each(const MemoryRange& range, const Body& body) {
  const auto begin = reinterpret_cast<uintptr_t>(range.begin), end = begin + range.bytes;
  if (begin == end) return;
  split(begin);
  split(end);
  for (uintptr_t at = begin; at < end;) {
    auto cell = cells_.lower_bound(at);
    if (cell == cells_.end() || cell->first > at) {  // bytes that have not been used yet
      const uintptr_t gap_end = cell == cells_.end() ? end : std::min(end, cell->first);
      cell = cells_.emplace_hint(cell, at, Cell{.end = gap_end});
    }
    body(cell->second);
    at = cell->second.end;
  }
}

void OrderCheck::read(const MemoryRange& range, const Access& access, const VectorClock& point) {
  for_each(range, [&](Cell& cell) {
    require_before(cell.writer, access, point, "reads what was written by");
    std::erase_if(cell.readers, [&](const Access& r) { return r.timeline == access.timeline; });
    cell.readers.push_back(access);
  });
}

void OrderCheck::write(const MemoryRange& range, const Access& access, const VectorClock& point) {
  for_each(range, [&](Cell& cell) {
    require_before(cell.writer, access, point, "overwrites what was written by");
    for (const Access& reader : cell.readers) require_before(reader, access, point, "overwrites what was read by");
    cell.writer = access;
    cell.readers.clear();
  });
}

}  // namespace lockstep
