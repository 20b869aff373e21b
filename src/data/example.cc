#include "data/example.h"

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/data/data_source.h"

namespace lockstep {
namespace {

using Bytes = std::span<const std::byte>;

// Field numbers of tensorflow/core/example/{example,feature}.proto.
constexpr uint64_t kExampleFeatures = 1;
constexpr uint64_t kFeaturesFeature = 1;
constexpr uint64_t kEntryKey = 1;
constexpr uint64_t kEntryValue = 2;
constexpr uint64_t kFeatureBytesList = 1;
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
        take(4);
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

// The first value of a feature's Int64List, packed or not.
std::optional<int64_t> first_int64(Bytes feature) {
  for (WireReader lists(feature); !lists.done();) {
    const Field list = lists.next();
    if (list.number != kFeatureInt64List || !list.is_bytes) continue;
    for (WireReader values(list.bytes); !values.done();) {
      const Field value = values.next();
      if (value.number != kListValue) continue;
      if (!value.is_bytes) return static_cast<int64_t>(value.value);
      if (!value.bytes.empty()) return static_cast<int64_t>(WireReader(value.bytes).varint());
    }
  }
  return std::nullopt;
}

}  // namespace

ImageExample parse_image_example(Bytes record) {
  std::optional<Bytes> encoded;
  std::optional<int64_t> label;
  std::string seen;
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
      if (key == "image/encoded") encoded = first_bytes(value);
      if (key == "image/class/label") label = first_int64(value);
      if (seen.size() < 200) seen += fmt::format("{}{}", seen.empty() ? "" : ", ", key);
    }
  }
  if (!encoded) throw BadRecord(fmt::format("has no bytes feature image/encoded (it has: {})", seen));
  if (!label) throw BadRecord(fmt::format("has no integer feature image/class/label (it has: {})", seen));
  return {.encoded = *encoded, .label = *label};
}

}  // namespace lockstep
