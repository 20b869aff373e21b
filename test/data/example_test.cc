#include "data/example.h"

#include "lockstep/base/random.h"
#include "lockstep/data/data_source.h"
#include "test/catch.h"
#include "test/data/record_writer.h"

using namespace lockstep;

namespace {

ImageExample parse(const std::string& record) { return parse_image_example(std::as_bytes(std::span(record))); }

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

TEST_CASE("image and label are found among other features, in any order") {
  const std::string record = image_example("the image", 812);
  const ImageExample example = parse(record);
  CHECK(text_of(example.encoded) == "the image");
  CHECK(example.label == 812);
}

TEST_CASE("labels are read packed, unpacked and negative") {
  const auto record = [](const std::string& list) {
    return wire_field(
        1, wire_feature("image/encoded", bytes_feature("x")) + wire_feature("image/class/label", wire_field(3, list)));
  };
  CHECK(parse(record(wire_field(1, varint_bytes(300)))).label == 300);
  CHECK(parse(record(varint_bytes(1 << 3) + varint_bytes(300))).label == 300);
  CHECK(parse(record(wire_field(1, varint_bytes(~uint64_t{0})))).label == -1);
}

TEST_CASE("a missing feature is named, with those that are there") {
  const std::string other = wire_field(1, wire_feature("label", int64_feature(1)));
  CHECK_THROWS_WITH(parse(other), ContainsSubstring("image/encoded") && ContainsSubstring("it has: label"));
  const std::string unlabelled = wire_field(1, wire_feature("image/encoded", bytes_feature("x")));
  CHECK_THROWS_WITH(parse(unlabelled), ContainsSubstring("image/class/label"));
  CHECK_THROWS_AS(parse(""), BadRecord);
}

TEST_CASE("garbage is a bad record and never read past its end") {
  const std::string whole = image_example("0123456789", 5);
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string cut(whole.data(), length);
    CHECK_THROWS_AS(parse(cut), BadRecord);
  }
  RandomStream random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = whole;
    for (int i = 0; i < 3; ++i) damaged[random.below(damaged.size())] = static_cast<char>(random.bits());
    try {
      parse(damaged);
    } catch (const BadRecord&) {
    }
  }
  SUCCEED();
}
