#include "lockstep/io/protobuf_reader.h"

#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "lockstep/io/protobuf_writer.h"
#include "test/catch.h"

using namespace lockstep;
using namespace std::string_literals;
using Wire = ProtobufField::Wire;

namespace {

ProtobufReader reader(const std::string& text) { return ProtobufReader(std::as_bytes(std::span(text))); }

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("what the protobuf writer writes is read back") {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const std::string message = ProtobufWriter()
                                  .integer(1, 150)
                                  .integer(300, kLeast)
                                  .float32(2, -0.5F)
                                  .float64(3, 1e300)
                                  .text(4, "testing")
                                  .packed(5, std::vector<double>{1.0, 2.0})
                                  .data();
  ProtobufReader r = reader(message);
  CHECK(r.next().value == 150);
  const ProtobufField least = r.next();
  CHECK(least.number == 300);
  CHECK(static_cast<int64_t>(least.value) == kLeast);
  const ProtobufField half = r.next();
  CHECK(half.wire == Wire::fixed32);
  CHECK(std::bit_cast<float>(static_cast<uint32_t>(half.value)) == -0.5F);
  const ProtobufField large = r.next();
  CHECK(large.wire == Wire::fixed64);
  CHECK(std::bit_cast<double>(large.value) == 1e300);
  CHECK(text_of(r.next().bytes) == "testing");
  ProtobufReader list(r.next().bytes);
  CHECK(std::bit_cast<double>(list.fixed64()) == 1.0);
  CHECK(std::bit_cast<double>(list.fixed64()) == 2.0);
  CHECK(list.done());
  CHECK(r.done());
}

TEST_CASE("bytes that are no protobuf message are refused where they go wrong") {
  struct Row {
    std::string message, why;
  };
  const Row rows[] = {
      {"\x08", "field past the end"},
      {"\x08\x96", "field past the end"},
      {"\x0d\x01\x02", "field past the end"},
      {"\x09\x01\x02", "field past the end"},
      {"\x12\x08testing", "field past the end"},
      {"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", "field past the end"},
      {"\x08" + std::string(10, '\xff') + "\x01", "number too long"},
      {"\x0b", "unknown wire type"},
      {"\x0e", "unknown wire type"},
  };
  for (const auto& [message, why] : rows) {
    INFO(why);
    ProtobufReader r = reader(message);
    CHECK_THROWS_WITH(r.next(), why);
  }
  CHECK(reader("").done());
}
