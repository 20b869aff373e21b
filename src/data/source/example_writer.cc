#include "data/source/example_writer.h"

#include "lockstep/io/protobuf_writer.h"

namespace lockstep {
namespace {

// Field numbers of tensorflow/core/example/{example,feature}.proto.
ProtobufWriter bytes_feature(std::string_view value) {
  return ProtobufWriter().message(1, ProtobufWriter().text(1, value));
}
ProtobufWriter integer_feature(int64_t value) {
  return ProtobufWriter().message(3, ProtobufWriter().integer(1, value));
}

}  // namespace

std::string serialize_example(const ImageRecord& record) {
  ProtobufWriter features;
  const auto add = [&](std::string_view key, const ProtobufWriter& feature) {
    features.message(1, ProtobufWriter().text(1, key).message(2, feature));
  };
  add("image/encoded", bytes_feature(record.encoded));
  add("image/format", bytes_feature(record.format));
  add("image/class/label", integer_feature(record.label));
  if (!record.class_name.empty()) add("image/class/text", bytes_feature(record.class_name));
  add("image/height", integer_feature(record.height));
  add("image/width", integer_feature(record.width));
  return ProtobufWriter().message(1, features).data();
}

}  // namespace lockstep
