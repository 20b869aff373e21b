#include "lockstep/tensor/tensor.h"

#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

TEST_CASE("shapes count elements and print") {
  CHECK(Shape{}.elements() == 1);
  CHECK(Shape{2, 3, 4, 5}.elements() == 120);
  CHECK(Shape{8, 64, 35, 35}.to_string() == "[8,64,35,35]");
  CHECK(Shape{2, 3} == Shape{2, 3});
  CHECK_FALSE(Shape{2, 3} == Shape{2, 3, 1});
  CHECK_THROWS_AS((Shape{1, 1, 1, 1, 1}), Error);
}

TEST_CASE("sizes that overflow are errors, not other sizes") {
  const int64_t large = int64_t{1} << 32;
  CHECK(Shape{large, large / 4}.elements() == int64_t{1} << 62);
  CHECK_THROWS_AS((Shape{large, large / 2}.elements()), Error);
  CHECK_THROWS_AS((Shape{2, -3}.elements()), Error);
  CHECK_THROWS_AS(packed_bytes({{large, large / 4}, DType::f32, Format::plain()}), Error);
  CHECK_THROWS_AS(packed_bytes({{large, 1, large / 8, 1}, DType::u8, Format::blocked(16)}), Error);
}

TEST_CASE("blocked formats pad the channels") {
  const Shape shape{2, 20, 3, 3};
  CHECK(packed_bytes({shape, DType::f32, Format::plain()}) == 2 * 20 * 9 * 4);
  CHECK(packed_bytes({shape, DType::f32, Format::blocked(16)}) == 2 * 32 * 9 * 4);
  CHECK_THROWS_AS(packed_bytes({shape, DType::f32, Format::opaque(1)}), Error);
}

TEST_CASE("the channels of a tensor start where its format says") {
  const Shape shape{2, 64, 3, 5};
  CHECK(channel_offset_bytes({shape, DType::f32, Format::plain()}, 7) == 7 * 15 * 4);
  CHECK(channel_offset_bytes({shape, DType::f32, Format::blocked(16)}, 32) == 32 * 15 * 4);
  CHECK(channel_offset_bytes({shape, DType::f32, Format::channels_last()}, 7) == 7 * 4);
  CHECK_THROWS_AS(channel_offset_bytes({shape, DType::f32, Format::blocked(16)}, 7), Error);
  CHECK(TensorDesc{shape, DType::f32, Format::plain(), 96}.to_string() == "f32[2,64,3,5] plain of 96 channels");
}
