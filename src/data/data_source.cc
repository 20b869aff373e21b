#include "lockstep/data/data_source.h"

#include <algorithm>
#include <limits>

namespace lockstep {

void DataSource::read(int64_t index, Sample& sample) const {
  try {
    fetch(index, sample);
  } catch (const BadRecord& bad) {
    throw BadRecord(fmt::format("{}: {}", where(index), bad.what()), bad.where());
  }
  const int64_t stored = sample.label;
  const int64_t largest = labels_.classes > 0 ? labels_.classes - 1 : std::numeric_limits<int32_t>::max();
  if (__builtin_add_overflow(stored, labels_.offset, &sample.label) || sample.label < 0 || sample.label > largest) {
    fail(ExitCode::data,
         "{}: label {} (stored as {}, data.label_offset = {}) is outside the allowed range 0..{}; set "
         "data.label_offset and model.classes to fit the data",
         where(index), sample.label, stored, labels_.offset, largest);
  }
}

LabelRange probe_labels(const DataSource& source, int64_t samples) {
  if (const auto known = source.known_labels()) return *known;
  LabelRange range;
  Sample sample;
  const int64_t count = std::min(samples, source.size());
  for (int64_t i = 0; i < count; ++i) {
    try {
      source.read(i * source.size() / count, sample);
    } catch (const BadRecord&) {
      continue;
    }
    const bool first = range.largest < range.smallest;
    range.smallest = first ? sample.label : std::min(range.smallest, sample.label);
    range.largest = first ? sample.label : std::max(range.largest, sample.label);
  }
  return range;
}

}  // namespace lockstep
