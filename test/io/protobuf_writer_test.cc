#include "lockstep/io/protobuf_writer.h"

#include <vector>

#include "test/catch.h"

using namespace lockstep;
using namespace std::string_literals;

TEST_CASE("protobuf fields are the bytes of the format's own examples") {
  CHECK(ProtobufWriter().integer(1, 150).data() == "\x08\x96\x01"s);
  CHECK(ProtobufWriter().text(2, "testing").data() == "\x12\x07testing"s);
  CHECK(ProtobufWriter().message(3, ProtobufWriter().integer(1, 150)).data() == "\x1a\x03\x08\x96\x01"s);
}

TEST_CASE("protobuf numbers of fixed width are little-endian, negative integers ten bytes") {
  CHECK(ProtobufWriter().float32(1, 1.0F).data() == "\x0d\x00\x00\x80\x3f"s);
  CHECK(ProtobufWriter().float64(1, 1.0).data() == "\x09\x00\x00\x00\x00\x00\x00\xf0\x3f"s);
  CHECK(ProtobufWriter().integer(1, -1).data() == "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s);
  CHECK(ProtobufWriter().packed(6, std::vector<double>{1.0}).data() == "\x32\x08\x00\x00\x00\x00\x00\x00\xf0\x3f"s);
}

TEST_CASE("protobuf keys of fields above 15 take two bytes, and fields follow each other") {
  CHECK(ProtobufWriter().integer(20, 2).integer(1, 0).data() == "\xa0\x01\x02\x08\x00"s);
}
