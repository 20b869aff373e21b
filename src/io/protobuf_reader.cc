#include "lockstep/io/protobuf_reader.h"

#include <cstring>

namespace lockstep {

std::span<const std::byte> ProtobufReader::take(uint64_t count) {
  if (count > left_.size()) throw MalformedMessage("field past the end");
  const auto taken = left_.first(static_cast<size_t>(count));
  left_ = left_.subspan(static_cast<size_t>(count));
  return taken;
}

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = std::to_integer<uint64_t>(take(1)[0]);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  throw MalformedMessage("number too long");
}

uint32_t ProtobufReader::fixed32() {
  uint32_t value = 0;
  std::memcpy(&value, take(sizeof value).data(), sizeof value);
  return value;
}

uint64_t ProtobufReader::fixed64() {
  uint64_t value = 0;
  std::memcpy(&value, take(sizeof value).data(), sizeof value);
  return value;
}

ProtobufField ProtobufReader::next() {
  const uint64_t tag = varint();
  ProtobufField field{.number = tag >> 3, .wire = static_cast<ProtobufField::Wire>(tag & 7)};
  switch (field.wire) {
    case ProtobufField::Wire::varint:
      field.value = varint();
      return field;
    case ProtobufField::Wire::fixed64:
      field.value = fixed64();
      return field;
    case ProtobufField::Wire::bytes:
      field.bytes = take(varint());
      return field;
    case ProtobufField::Wire::fixed32:
      field.value = fixed32();
      return field;
  }
  throw MalformedMessage("unknown wire type");
}

}  // namespace lockstep
