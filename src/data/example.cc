#include "data/example.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

using Bytes = std::span<const std::byte>;

// Field numbers of tensorflow/core/example/{example,feature}.proto.
constexpr uint64_t kExampleFeatures = 1;
constexpr uint64_t kFeaturesFeature = 1;
constexpr uint64_t kEntryKey = 1;
constexpr uint64_t kEntryValue = 2;
constexpr uint64_t kFeatureBytesList = 1;
constexpr uint64_t kFeatureFloatList = 2;
constexpr uint64_t kFeatureInt64List = 3;
constexpr uint64_t kListValue = 1;

// One field of a message: its number and, by wire type, a number or bytes.
struct Field {
  uint64_t number = 0;
  bool is_bytes = false;
  uint64_t value = 0;
  Bytes bytes;
};

// Walks the fields of one message.
class WireReader {
 public:
  explicit WireReader(Bytes message) : left_(message) {}

  bool done() const { return left_.empty(); }

  Field next() {
    const uint64_t tag = varint();
    Field field;
    field.number = tag >> 3;
    switch (tag & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        field.bytes = take(varint());
        field.is_bytes = true;
        break;
      case 5:
        field.value = fixed32();
        break;
      default:
        throw BadRecord("is not a tf.train.Example (unknown wire type)");
    }
    return field;
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const auto byte = std::to_integer<uint64_t>(take(1)[0]);
      value |= (byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw BadRecord("is not a tf.train.Example (number too long)");
  }

  uint32_t fixed32() {
    uint32_t value = 0;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

 private:
  Bytes take(uint64_t count) {
    if (count > left_.size()) throw BadRecord("is not a tf.train.Example (field past the end)");
    const Bytes taken = left_.first(static_cast<size_t>(count));
    left_ = left_.subspan(static_cast<size_t>(count));
    return taken;
  }

  Bytes left_;
};

std::string_view as_text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// The first value of a feature's BytesList.
std::optional<Bytes> first_bytes(Bytes feature) {
  for (WireReader lists(feature); !lists.done();) {
    const Field list = lists.next();
    if (list.number != kFeatureBytesList || !list.is_bytes) continue;
    for (WireReader values(list.bytes); !values.done();) {
      const Field value = values.next();
      if (value.number == kListValue && value.is_bytes) return value.bytes;
    }
  }
  return std::nullopt;
}

// Every number of the feature's lists of kind `list_kind`: take(reader) reads a packed one, take_field(value) is given
// one that stands alone.
template <class Take, class TakeField>
void for_each_number(Bytes feature, uint64_t list_kind, const Take& take, const TakeField& take_field) {
  for (WireReader lists(feature); !lists.done();) {
    const Field list = lists.next();
    if (list.number != list_kind || !list.is_bytes) continue;
    for (WireReader values(list.bytes); !values.done();) {
      const Field value = values.next();
      if (value.number != kListValue) continue;
      if (!value.is_bytes) take_field(value.value);
      for (WireReader packed(value.is_bytes ? value.bytes : Bytes()); !packed.done();) take(packed);
    }
  }
}

void read_int64s(Bytes feature, std::vector<int64_t>& values) {
  values.clear();
  for_each_number(
      feature, kFeatureInt64List, [&](WireReader& packed) { values.push_back(static_cast<int64_t>(packed.varint())); },
      [&](uint64_t value) { values.push_back(static_cast<int64_t>(value)); });
}

void read_floats(Bytes feature, std::vector<float>& values) {
  values.clear();
  const auto add = [&](uint32_t bits) { values.push_back(std::bit_cast<float>(bits)); };
  for_each_number(
      feature, kFeatureFloatList, [&](WireReader& packed) { add(packed.fixed32()); },
      [&](uint64_t value) { add(static_cast<uint32_t>(value)); });
}

// Calls visit(key, feature) for each feature of an Example.
template <class Visit>
void for_each_feature(Bytes record, const Visit& visit) {
  for (WireReader example(record); !example.done();) {
    const Field features = example.next();
    if (features.number != kExampleFeatures || !features.is_bytes) continue;
    for (WireReader entries(features.bytes); !entries.done();) {
      const Field entry = entries.next();
      if (entry.number != kFeaturesFeature || !entry.is_bytes) continue;
      std::string_view key;
      Bytes value;
      for (WireReader parts(entry.bytes); !parts.done();) {
        const Field part = parts.next();
        if (part.number == kEntryKey) key = as_text(part.bytes);
        if (part.number == kEntryValue) value = part.bytes;
      }
      visit(key, value);
    }
  }
}

[[noreturn]] void fail_without(Bytes record, std::string_view kind, std::string_view key) {
  std::string seen;
  for_each_feature(record, [&](std::string_view name, Bytes) {
    if (seen.size() < 200) seen += fmt::format("{}{}", seen.empty() ? "" : ", ", name);
  });
  throw BadRecord(fmt::format("has no {} feature {} (it has: {})", kind, key, seen));
}

// The one number of a label, whichever of the two lists holds it.
std::optional<int64_t> label_of(Bytes feature, Sample& scratch) {
  read_int64s(feature, scratch.ids);
  if (!scratch.ids.empty()) return scratch.ids.front();
  read_floats(feature, scratch.values);
  if (scratch.values.empty()) return std::nullopt;
  const float label = scratch.values.front();
  if (!(std::abs(label) < 1e9F) || label != std::floor(label)) {
    throw BadRecord(fmt::format("its label {} is no whole number", label));
  }
  return static_cast<int64_t>(label);
}

}  // namespace

ImageExample parse_image_example(Bytes record) {
  std::optional<Bytes> encoded;
  std::vector<int64_t> label;
  for_each_feature(record, [&](std::string_view key, Bytes feature) {
    if (key == "image/encoded") encoded = first_bytes(feature);
    if (key == "image/class/label") read_int64s(feature, label);
  });
  if (!encoded) fail_without(record, "bytes", "image/encoded");
  if (label.empty()) fail_without(record, "integer", "image/class/label");
  return {.encoded = *encoded, .label = label.front()};
}

void parse_sparse_example(Bytes record, const SparseKeys& keys, Sample& sample) {
  std::optional<Bytes> label, ids, values;
  for_each_feature(record, [&](std::string_view key, Bytes feature) {
    if (key == keys.label) label = feature;
    if (key == keys.ids) ids = feature;
    if (key == keys.values) values = feature;
  });
  const std::optional<int64_t> number = label ? label_of(*label, sample) : std::nullopt;
  if (!number) fail_without(record, "number", keys.label);
  if (!ids) fail_without(record, "integer", keys.ids);
  sample.kind = Sample::Kind::sparse;
  sample.label = *number;
  read_int64s(*ids, sample.ids);
  if (!values) {
    sample.values.assign(sample.ids.size(), 1.0F);
    return;
  }
  read_floats(*values, sample.values);
  if (sample.values.size() != sample.ids.size()) {
    throw BadRecord(fmt::format("has {} {} and {} {}", sample.ids.size(), keys.ids, sample.values.size(), keys.values));
  }
}

}  // namespace lockstep
