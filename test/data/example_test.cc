#include "data/source/example.h"

#include <limits>

#include "lockstep/base/random.h"
#include "lockstep/data/source/data_source.h"
#include "test/catch.h"
#include "test/data/record_writer.h"

using namespace lockstep;

namespace {

ImageExample parse(const std::string& record) { return parse_image_example(std::as_bytes(std::span(record))); }

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Sample parse_sparse(const std::string& record, const SparseKeys& keys = {}) {
  Sample sample;
  parse_sparse_example(std::as_bytes(std::span(record)), keys, sample);
  return sample;
}

std::string image_features(const std::string& encoded, const std::string& label) {
  return wire_field(1, wire_feature("image/encoded", encoded) + wire_feature("image/class/label", label));
}

std::string features(const std::vector<std::string>& entries) {
  std::string all;
  for (const std::string& entry : entries) all += entry;
  return wire_field(1, all);
}

}  // namespace

TEST_CASE("sparse samples have a label, ids and values of any length") {
  const Sample sample = parse_sparse(sparse_example(1, {3, 300, 0}, {1.0F, -0.5F, 2.25F}));
  CHECK(sample.kind == Sample::Kind::sparse);
  CHECK(sample.label == 1);
  CHECK(sample.ids == std::vector<int64_t>{3, 300, 0});
  CHECK(sample.values == std::vector<float>{1.0F, -0.5F, 2.25F});
  CHECK(parse_sparse(sparse_example(0, {}, {})).ids.empty());
  CHECK(parse_sparse(sparse_example(0, std::vector<int64_t>(5000, 7), std::vector<float>(5000, 1))).ids.size() == 5000);
}

TEST_CASE("lists of sparse samples may stand unpacked") {
  const std::string ids =
      wire_field(3, varint_bytes(1 << 3) + varint_bytes(9) + varint_bytes(1 << 3) + varint_bytes(200));
  const std::string values = wire_field(2, varint_bytes(1 << 3 | 5) + little_endian(0x3f800000, 4) +
                                               varint_bytes(1 << 3 | 5) + little_endian(0xbf000000, 4));
  const Sample sample = parse_sparse(
      features({wire_feature("ids", ids), wire_feature("values", values), wire_feature("label", int64_feature(2))}));
  CHECK(sample.ids == std::vector<int64_t>{9, 200});
  CHECK(sample.values == std::vector<float>{1.0F, -0.5F});
}

TEST_CASE("a label may be a float that is a whole number") {
  const auto record = [](float label) {
    return features({wire_feature("label", floats_feature({label})), wire_feature("ids", int64s_feature({1}))});
  };
  CHECK(parse_sparse(record(1.0F)).label == 1);
  CHECK(parse_sparse(record(-1.0F)).label == -1);
  CHECK_THROWS_WITH(parse_sparse(record(0.5F)), ContainsSubstring("label 0.5 is no whole number"));
  CHECK_THROWS_WITH(parse_sparse(record(std::numeric_limits<float>::quiet_NaN())),
                    ContainsSubstring("no whole number"));
}

TEST_CASE("the features of a sparse sample may have other names, and without values they are 1") {
  const std::string record =
      features({wire_feature("click", int64_feature(1)), wire_feature("f", int64s_feature({4, 5}))});
  const Sample sample = parse_sparse(record, {.label = "click", .ids = "f", .values = "v"});
  CHECK(sample.label == 1);
  CHECK(sample.values == std::vector<float>{1, 1});
  CHECK_THROWS_WITH(parse_sparse(record),
                    ContainsSubstring("no number feature label") && ContainsSubstring("click, f"));
}

TEST_CASE("ids and values of different number are a bad record") {
  CHECK_THROWS_AS(parse_sparse(sparse_example(1, {3, 4}, {1.0F})), BadRecord);
  CHECK_THROWS_WITH(parse_sparse(sparse_example(1, {3, 4}, {1.0F})), ContainsSubstring("2 ids and 1 values"));
  CHECK_THROWS_AS(parse_sparse(image_example("x", 1)), BadRecord);
}

TEST_CASE("a label of several numbers is a bad record that says how many it has") {
  CHECK_THROWS_WITH(parse(image_features(bytes_feature("x"), int64s_feature({0, 1, 0}))),
                    ContainsSubstring("feature image/class/label holds 3 values, where one label is needed"));
  CHECK_THROWS_WITH(parse(image_features(bytes_feature("x"), int64s_feature({}))), ContainsSubstring("holds 0 values"));
  const std::string two_lists = int64_feature(1) + int64_feature(2);
  CHECK_THROWS_WITH(parse(image_features(bytes_feature("x"), two_lists)), ContainsSubstring("holds 2 values"));
  CHECK_THROWS_AS(
      parse_sparse(features({wire_feature("label", int64s_feature({1, 0})), wire_feature("ids", int64s_feature({1}))})),
      BadRecord);
  CHECK_THROWS_WITH(
      parse_sparse(features({wire_feature("label", floats_feature({1, 0})), wire_feature("ids", int64s_feature({1}))})),
      ContainsSubstring("feature label holds 2 values"));
}

TEST_CASE("two images, or one feature twice, are a bad record") {
  const std::string two = wire_field(1, wire_field(1, "x") + wire_field(1, "y"));
  CHECK_THROWS_WITH(parse(image_features(two, int64_feature(1))),
                    ContainsSubstring("feature image/encoded holds 2 values, where one image is needed"));
  CHECK_THROWS_WITH(parse(features({wire_feature("image/encoded", bytes_feature("x")),
                                    wire_feature("image/class/label", int64_feature(1)),
                                    wire_feature("image/class/label", int64_feature(2))})),
                    ContainsSubstring("has the feature image/class/label twice"));
}

TEST_CASE("a feature of another type is named, and never taken for an empty one") {
  CHECK_THROWS_WITH(parse(image_features(bytes_feature("x"), bytes_feature("cat"))),
                    ContainsSubstring("feature image/class/label holds bytes, where integers are needed"));
  CHECK_THROWS_WITH(parse(image_features(bytes_feature("x"), floats_feature({1}))),
                    ContainsSubstring("holds floats, where integers are needed"));
  CHECK_THROWS_WITH(parse(image_features(int64_feature(1), int64_feature(1))),
                    ContainsSubstring("feature image/encoded holds integers, where bytes are needed"));
  const auto sparse = [](const std::string& ids, const std::string& values) {
    return features(
        {wire_feature("label", int64_feature(1)), wire_feature("ids", ids), wire_feature("values", values)});
  };
  CHECK_THROWS_WITH(parse_sparse(sparse(floats_feature({3}), floats_feature({1}))),
                    ContainsSubstring("feature ids holds floats, where integers are needed"));
  CHECK_THROWS_WITH(parse_sparse(sparse(bytes_feature("3"), floats_feature({}))), ContainsSubstring("holds bytes"));
  CHECK_THROWS_WITH(parse_sparse(sparse(int64_feature(3), int64_feature(1))),
                    ContainsSubstring("feature values holds integers, where floats are needed"));
  CHECK_THROWS_WITH(parse_sparse(sparse(int64_feature(3) + floats_feature({1}), floats_feature({1}))),
                    ContainsSubstring("feature ids holds integers and floats"));
  CHECK(parse_sparse(sparse("", "")).ids.empty());  // a feature without any list is an empty one
}

TEST_CASE("the wire type of a list and of its values is checked") {
  const std::string no_list = varint_bytes(3 << 3) + varint_bytes(7);
  CHECK_THROWS_WITH(parse(image_features(bytes_feature("x"), no_list)), ContainsSubstring("not a tf.train.Example"));
  const std::string fixed = wire_field(3, varint_bytes(1 << 3 | 1) + little_endian(7, 8));
  CHECK_THROWS_WITH(parse(image_features(bytes_feature("x"), fixed)), ContainsSubstring("not a tf.train.Example"));
}

TEST_CASE("names from a record are printed without what a terminal acts on") {
  const std::string record = features({wire_feature("a\x1b[31m\nb", bytes_feature("x"))});
  CHECK_THROWS_WITH(parse(record), ContainsSubstring("it has: a\\x1b[31m\\x0ab"));
  CHECK_THROWS_WITH(parse_sparse(record), ContainsSubstring("it has: a\\x1b[31m\\x0ab"));
}

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
