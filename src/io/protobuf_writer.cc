#include "lockstep/io/protobuf_writer.h"

#include <bit>

namespace lockstep {
namespace {

constexpr int kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5;

// Fixed-width numbers are little-endian in the format and on x86-64, so they are copied as they are.
static_assert(std::endian::native == std::endian::little);
template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace

void ProtobufWriter::varint(uint64_t value) {
  for (; value > 0x7f; value >>= 7) data_ += static_cast<char>((value & 0x7f) | 0x80);
  data_ += static_cast<char>(value);
}

void ProtobufWriter::key(int field, int wire_type) { varint(static_cast<uint64_t>(field) << 3 | wire_type); }

ProtobufWriter& ProtobufWriter::integer(int field, int64_t value) {
  key(field, kVarint);
  varint(static_cast<uint64_t>(value));
  return *this;
}

ProtobufWriter& ProtobufWriter::float32(int field, float value) {
  key(field, kFixed32);
  data_ += bytes_of(value);
  return *this;
}

ProtobufWriter& ProtobufWriter::float64(int field, double value) {
  key(field, kFixed64);
  data_ += bytes_of(value);
  return *this;
}

ProtobufWriter& ProtobufWriter::text(int field, std::string_view value) {
  key(field, kLengthDelimited);
  varint(value.size());
  data_ += value;
  return *this;
}

ProtobufWriter& ProtobufWriter::bytes(int field, std::span<const std::byte> value) {
  return text(field, {reinterpret_cast<const char*>(value.data()), value.size()});
}

ProtobufWriter& ProtobufWriter::message(int field, const ProtobufWriter& value) { return text(field, value.data_); }

ProtobufWriter& ProtobufWriter::packed(int field, std::span<const double> values) {
  return bytes(field, std::as_bytes(values));
}

}  // namespace lockstep
