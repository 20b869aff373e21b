#include "data/source/example.h"

#include <bit>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/printable.h"
#include "lockstep/io/protobuf_reader.h"

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

using Field = ProtobufField;
using Wire = ProtobufField::Wire;
using WireReader = ProtobufReader;

std::string_view as_text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// The type of the values of a feature.
enum class ListKind : uint8_t { nothing, bytes, floats, integers };

std::string_view name_of(ListKind kind) {
  constexpr std::string_view kNames[] = {"nothing", "bytes", "floats", "integers"};
  return kNames[static_cast<size_t>(kind)];
}

// Calls visit(kind, list) for each list of a feature.
template <class Visit>
void for_each_list(Bytes feature, const Visit& visit) {
  for (WireReader lists(feature); !lists.done();) {
    const Field list = lists.next();
    if (list.number < kFeatureBytesList || list.number > kFeatureInt64List) continue;
    if (!list.is_bytes()) throw BadRecord("is not a tf.train.Example (a feature without a list)");
    if (list.number == kFeatureBytesList) visit(ListKind::bytes, list.bytes);
    if (list.number == kFeatureFloatList) visit(ListKind::floats, list.bytes);
    if (list.number == kFeatureInt64List) visit(ListKind::integers, list.bytes);
  }
}

// A feature of one record and its name.
struct NamedFeature {
  std::string_view key;
  Bytes feature;
};

ListKind kind_of(const NamedFeature& named) {
  ListKind found = ListKind::nothing;
  for_each_list(named.feature, [&](ListKind kind, Bytes) {
    if (found != ListKind::nothing && found != kind) {
      throw BadRecord(
          fmt::format("its feature {} holds {} and {}", printable(named.key), name_of(found), name_of(kind)));
    }
    found = kind;
  });
  return found;
}

// A feature without a list counts as an empty list of the required type, because some writers omit empty lists.
void require_kind(const NamedFeature& named, ListKind needed) {
  const ListKind kind = kind_of(named);
  if (kind == needed || kind == ListKind::nothing) return;
  throw BadRecord(fmt::format("its feature {} holds {}, where {} are needed", printable(named.key), name_of(kind),
                              name_of(needed)));
}

// Visits every number in the lists of a feature: take(reader) reads one of a packed list; take_field(value) receives an
// unpacked one, which must have the wire type `alone`.
template <class Take, class TakeField>
void for_each_number(Bytes feature, Wire alone, const Take& take, const TakeField& take_field) {
  for_each_list(feature, [&](ListKind, Bytes list) {
    for (WireReader values(list); !values.done();) {
      const Field value = values.next();
      if (value.number != kListValue) continue;
      if (value.is_bytes()) {
        for (WireReader packed(value.bytes); !packed.done();) take(packed);
      } else if (value.wire == alone) {
        take_field(value.value);
      } else {
        throw BadRecord("is not a tf.train.Example (a list with a value of another type)");
      }
    }
  });
}

void read_int64s(const NamedFeature& named, std::vector<int64_t>& values) {
  require_kind(named, ListKind::integers);
  values.clear();
  for_each_number(
      named.feature, Wire::varint, [&](WireReader& packed) { values.push_back(static_cast<int64_t>(packed.varint())); },
      [&](uint64_t value) { values.push_back(static_cast<int64_t>(value)); });
}

void read_floats(const NamedFeature& named, std::vector<float>& values) {
  require_kind(named, ListKind::floats);
  values.clear();
  const auto add = [&](uint32_t bits) { values.push_back(std::bit_cast<float>(bits)); };
  for_each_number(
      named.feature, Wire::fixed32, [&](WireReader& packed) { add(packed.fixed32()); },
      [&](uint64_t value) { add(static_cast<uint32_t>(value)); });
}

[[noreturn]] void fail_count(const NamedFeature& named, size_t count, std::string_view needed) {
  throw BadRecord(fmt::format("its feature {} holds {} values, where {}", printable(named.key), count, needed));
}

constexpr std::string_view kOneImage = "one image is needed";
constexpr std::string_view kOneLabel = "one label is needed (one-hot and multi-hot labels are not read)";

Bytes read_image(const NamedFeature& named) {
  require_kind(named, ListKind::bytes);
  Bytes image;
  size_t count = 0;
  for_each_list(named.feature, [&](ListKind, Bytes list) {
    for (WireReader values(list); !values.done();) {
      const Field value = values.next();
      if (value.number != kListValue || !value.is_bytes()) continue;
      image = value.bytes;
      ++count;
    }
  });
  if (count != 1) fail_count(named, count, kOneImage);
  return image;
}

// Calls visit(key, feature) for each feature of an Example.
template <class Visit>
void for_each_feature(Bytes record, const Visit& visit) {
  for (WireReader example(record); !example.done();) {
    const Field features = example.next();
    if (features.number != kExampleFeatures || !features.is_bytes()) continue;
    for (WireReader entries(features.bytes); !entries.done();) {
      const Field entry = entries.next();
      if (entry.number != kFeaturesFeature || !entry.is_bytes()) continue;
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

// Stores a feature if it is needed. A key that occurs twice is an error, because either could be meant.
void note_feature(std::string_view wanted, const NamedFeature& named, std::optional<NamedFeature>& found) {
  if (named.key != wanted) return;
  if (found) throw BadRecord(fmt::format("has the feature {} twice", printable(wanted)));
  found = named;
}

[[noreturn]] void fail_without(Bytes record, std::string_view kind, std::string_view key) {
  constexpr size_t kListedBytes = 200;
  std::string seen;
  for_each_feature(record, [&](std::string_view name, Bytes) {
    if (seen.size() < kListedBytes) seen += fmt::format("{}{}", seen.empty() ? "" : ", ", printable(name));
  });
  throw BadRecord(fmt::format("has no {} feature {} ({})", kind, printable(key),
                              seen.empty() ? "it has none at all" : "it has: " + seen));
}

int64_t read_integer_label(const NamedFeature& named, std::vector<int64_t>& scratch) {
  read_int64s(named, scratch);
  if (scratch.size() != 1) fail_count(named, scratch.size(), kOneLabel);
  return scratch.front();
}

// Returns the only number of a label, an integer or a float.
int64_t read_label(const NamedFeature& named, Sample& scratch) {
  if (kind_of(named) != ListKind::floats) return read_integer_label(named, scratch.ids);
  read_floats(named, scratch.values);
  if (scratch.values.size() != 1) fail_count(named, scratch.values.size(), kOneLabel);
  const float label = scratch.values.front();
  if (!(std::abs(label) < 1e9F) || label != std::floor(label)) {
    throw BadRecord(fmt::format("its label {} is no whole number", label));
  }
  return static_cast<int64_t>(label);
}

// Calls parse(). Turns its exceptions into bad records that name the expected format.
template <class Parse>
auto as_example(const Parse& parse) {
  try {
    return parse();
  } catch (const MalformedMessage& e) {
    throw BadRecord(fmt::format("is not a tf.train.Example ({})", e.what()));
  }
}

ImageExample image_example(Bytes record) {
  constexpr std::string_view kImage = "image/encoded", kLabel = "image/class/label";
  std::optional<NamedFeature> encoded, label;
  for_each_feature(record, [&](std::string_view key, Bytes feature) {
    note_feature(kImage, {key, feature}, encoded);
    note_feature(kLabel, {key, feature}, label);
  });
  if (!encoded) fail_without(record, "bytes", kImage);
  if (!label) fail_without(record, "integer", kLabel);
  std::vector<int64_t> numbers;
  return {.encoded = read_image(*encoded), .label = read_integer_label(*label, numbers)};
}

void sparse_example(Bytes record, const SparseKeys& keys, Sample& sample) {
  std::optional<NamedFeature> label, ids, values;
  for_each_feature(record, [&](std::string_view key, Bytes feature) {
    note_feature(keys.label, {key, feature}, label);
    note_feature(keys.ids, {key, feature}, ids);
    note_feature(keys.values, {key, feature}, values);
  });
  if (!label) fail_without(record, "number", keys.label);
  if (!ids) fail_without(record, "integer", keys.ids);
  sample.kind = Sample::Kind::sparse;
  sample.label = read_label(*label, sample);
  read_int64s(*ids, sample.ids);
  if (!values) {
    sample.values.assign(sample.ids.size(), 1.0F);
    return;
  }
  read_floats(*values, sample.values);
  if (sample.values.size() != sample.ids.size()) {
    throw BadRecord(fmt::format("has {} {} and {} {}", sample.ids.size(), printable(keys.ids), sample.values.size(),
                                printable(keys.values)));
  }
}

}  // namespace

ImageExample parse_image_example(Bytes record) {
  return as_example([&] { return image_example(record); });
}

void parse_sparse_example(Bytes record, const SparseKeys& keys, Sample& sample) {
  as_example([&] { sparse_example(record, keys, sample); });
}

}  // namespace lockstep
