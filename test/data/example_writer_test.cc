#include "data/source/example_writer.h"

#include "data/source/example.h"
#include "lockstep/io/crc32c.h"
#include "test/catch.h"
#include "test/data/record_writer.h"

using namespace lockstep;

TEST_CASE("an example that was written is read back, whatever its label") {
  for (const int64_t label : {int64_t{0}, int64_t{1000}, int64_t{1} << 40}) {
    const std::string record = serialize_example({.encoded = std::string_view("a\0b", 3),
                                                  .format = "PNG",
                                                  .class_name = "tench",
                                                  .label = label,
                                                  .height = 3,
                                                  .width = 5});
    const ImageExample example = parse_image_example(std::as_bytes(std::span(record)));
    CHECK(example.label == label);
    CHECK(std::string(reinterpret_cast<const char*>(example.encoded.data()), example.encoded.size()) ==
          std::string("a\0b", 3));
    CHECK_THAT(record, ContainsSubstring("image/class/text") && ContainsSubstring("tench"));
  }
  CHECK_THAT(serialize_example({.encoded = "x", .format = "JPEG"}), !ContainsSubstring("image/class/text"));
}

TEST_CASE("records are framed one behind the other") {
  std::string file;
  append_tfrecord("first", file);
  append_tfrecord("", file);
  CHECK(file == frame_record("first") + frame_record(""));
}
