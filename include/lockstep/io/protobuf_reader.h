// Reads messages of Protocol Buffers in place, field by field, as ProtobufWriter writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

namespace lockstep {

// Thrown for bytes that are not a message. what() says why: "field past the end", for example.
struct MalformedMessage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct ProtobufField {
  enum class Wire : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
  uint64_t number = 0;
  Wire wire = Wire::varint;
  uint64_t value = 0;                // all but bytes: the bits of the number
  std::span<const std::byte> bytes;  // bytes: a text, message or packed list; part of the message that was read
  bool is_bytes() const { return wire == Wire::bytes; }
};

// Walks the fields of one message, or the numbers of a packed list. Allocates nothing; the bytes must outlive it.
// Throws MalformedMessage. Used by one thread.
class ProtobufReader {
 public:
  explicit ProtobufReader(std::span<const std::byte> message) : left_(message) {}

  bool done() const { return left_.empty(); }
  ProtobufField next();
  uint64_t varint();
  uint32_t fixed32();
  uint64_t fixed64();

 private:
  std::span<const std::byte> take(uint64_t count);
  std::span<const std::byte> left_;
};

}  // namespace lockstep
