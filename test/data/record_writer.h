// Writes TFRecord files of tf.train.Example messages, for tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/io/crc32c.h"

namespace lockstep {

inline std::string varint_bytes(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  return out + static_cast<char>(value);
}

// Field `number` of wire type 2.
inline std::string wire_field(int number, std::string_view content) {
  return varint_bytes(static_cast<uint64_t>(number) << 3 | 2) + varint_bytes(content.size()) + std::string(content);
}

inline std::string wire_feature(std::string_view key, std::string_view feature) {
  return wire_field(1, wire_field(1, key) + wire_field(2, feature));
}

inline std::string bytes_feature(std::string_view value) { return wire_field(1, wire_field(1, value)); }
inline std::string int64_feature(int64_t value) {
  return wire_field(3, wire_field(1, varint_bytes(static_cast<uint64_t>(value))));
}

// Lists of numbers, packed as protocol buffers pack them.
inline std::string int64s_feature(const std::vector<int64_t>& values) {
  std::string packed;
  for (const int64_t value : values) packed += varint_bytes(static_cast<uint64_t>(value));
  return wire_field(3, wire_field(1, packed));
}
inline std::string floats_feature(const std::vector<float>& values) {
  const std::string packed(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return wire_field(2, wire_field(1, packed));
}

inline std::string sparse_example(int64_t label, const std::vector<int64_t>& ids, const std::vector<float>& values) {
  return wire_field(1, wire_feature("values", floats_feature(values)) + wire_feature("label", int64_feature(label)) +
                           wire_feature("ids", int64s_feature(ids)));
}

inline std::string image_example(std::string_view encoded, int64_t label) {
  return wire_field(1, wire_feature("image/class/label", int64_feature(label)) +
                           wire_feature("image/format", bytes_feature("whatever")) +
                           wire_feature("image/encoded", bytes_feature(encoded)));
}

inline std::string little_endian(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
  return out;
}

inline std::string masked_checksum(std::string_view data) {
  return little_endian(mask_crc32c(crc32c(std::as_bytes(std::span(data.data(), data.size())))), 4);
}

inline std::string frame_record(std::string_view data) {
  const std::string length = little_endian(data.size(), 8);
  return length + masked_checksum(length) + std::string(data) + masked_checksum(data);
}

inline std::string frame_records(const std::vector<std::string>& records) {
  std::string file;
  for (const std::string& record : records) file += frame_record(record);
  return file;
}

}  // namespace lockstep
