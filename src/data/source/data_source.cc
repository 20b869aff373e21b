#include "lockstep/data/source/data_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <new>
#include <stdexcept>
#include <utility>

#include "lockstep/base/printable.h"

namespace lockstep {
namespace {

std::span<const float> floats_of(const Sample& sample) {
  if (sample.kind == Sample::Kind::sparse) return sample.values;
  if (sample.kind != Sample::Kind::f32) return {};
  return {reinterpret_cast<const float*>(sample.bytes.data()), sample.bytes.size() / sizeof(float)};
}

// Returns whether a number is infinite or NaN: then all bits of its exponent are set. There is no branch, because every
// pixel is checked.
bool all_finite(std::span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000;
  bool finite = true;
  for (const float value : values) finite &= (std::bit_cast<uint32_t>(value) & kExponent) != kExponent;
  return finite;
}

void require_finite(const Sample& sample) {
  const std::span<const float> values = floats_of(sample);
  if (all_finite(values)) return;
  const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  throw BadRecord(fmt::format("{} {} is {}", sample.kind == Sample::Kind::sparse ? "value" : "pixel value",
                              bad - values.begin(), *bad));
}

}  // namespace

void DataSource::read(int64_t index, Sample& sample) const {
  try {
    fetch(index, sample);
    require_finite(sample);
  } catch (const BadRecord& bad) {
    throw BadRecord(fmt::format("{}: {}", where(index), bad.what()), bad.where());
  } catch (const std::bad_alloc&) {
    throw BadRecord(fmt::format("{}: there is not enough memory to read it", where(index)));
  } catch (const std::length_error&) {
    throw BadRecord(fmt::format("{}: there is not enough memory to read it", where(index)));
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

DataProbe probe_data(const DataSource& source, int64_t samples) {
  DataProbe probe;
  if (const auto known = source.known_labels()) {
    probe.labels = *known;
    return probe;
  }
  Sample sample;
  const int64_t count = std::min(samples, source.size());
  for (int64_t i = 0; i < count; ++i) {
    try {
      source.read(i * source.size() / count, sample);
    } catch (const BadRecord&) {
      continue;
    }
    LabelRange& range = probe.labels;
    range.smallest = probe.records == 0 ? sample.label : std::min(range.smallest, sample.label);
    range.largest = probe.records == 0 ? sample.label : std::max(range.largest, sample.label);
    ++probe.records;
    if (sample.kind != Sample::Kind::f32 || sample.bytes.empty()) continue;
    const auto [low, high] = std::ranges::minmax(floats_of(sample));
    const PixelRange before = probe.pixels.value_or(PixelRange{low, high});
    probe.pixels = {std::min(before.smallest, low), std::max(before.largest, high)};
  }
  return probe;
}

std::string shared_input(const DataSource& a, const DataSource& b) {
  using FileNumber = std::pair<dev_t, ino_t>;
  const auto number_of = [](const std::string& path) {
    struct stat status = {};
    return ::stat(path.c_str(), &status) == 0 ? std::optional(FileNumber(status.st_dev, status.st_ino)) : std::nullopt;
  };
  std::map<FileNumber, const std::string*> seen;
  for (const std::string& path : a.inputs()) {
    if (const auto number = number_of(path)) seen.emplace(*number, &path);
  }
  for (const std::string& path : b.inputs()) {
    const auto number = number_of(path);
    const auto found = number ? seen.find(*number) : seen.end();
    if (found == seen.end()) continue;
    const std::string one = printable(*found->second), other = printable(path);
    return one == other ? one : fmt::format("{} and {}", one, other);
  }
  return {};
}

}  // namespace lockstep
