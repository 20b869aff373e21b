#include "data/source/example_writer.h"

#include <span>

#include "lockstep/io/crc32c.h"
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

// The format and x86-64 are little-endian.
template <class T>
void append_number(T value, std::string& file) {
  file.append(reinterpret_cast<const char*>(&value), sizeof value);
}

uint32_t checksum(std::string_view data) { return mask_crc32c(crc32c(std::as_bytes(std::span(data)))); }

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

void append_record(std::string_view data, std::string& file) {
  const size_t begin = file.size();
  append_number(static_cast<uint64_t>(data.size()), file);
  append_number(checksum(std::string_view(file).substr(begin)), file);
  file += data;
  append_number(checksum(data), file);
}

}  // namespace lockstep
