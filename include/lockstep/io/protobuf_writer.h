// The encoding of Protocol Buffers (https://protobuf.dev/programming-guides/encoding), as far as writing a few public
// messages needs: for two formats, a code generator and its library would be larger than this code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Builds one message; fields appear in the order of the calls. Plain value, one thread.
class ProtobufWriter {
 public:
  ProtobufWriter& integer(int field, int64_t value);  // int32, int64, bool and enum
  ProtobufWriter& float32(int field, float value);
  ProtobufWriter& float64(int field, double value);
  ProtobufWriter& text(int field, std::string_view value);  // string, bytes
  ProtobufWriter& bytes(int field, std::span<const std::byte> value);
  ProtobufWriter& message(int field, const ProtobufWriter& value);
  ProtobufWriter& packed(int field, std::span<const double> values);

  const std::string& data() const { return data_; }

 private:
  void key(int field, int wire_type);
  void varint(uint64_t value);
  std::string data_;
};

}  // namespace lockstep
