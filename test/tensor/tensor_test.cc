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

TEST_CASE("blocked formats pad the channels") {
  const Shape shape{2, 20, 3, 3};
  CHECK(packed_bytes({shape, DType::f32, Format::plain()}) == 2 * 20 * 9 * 4);
  CHECK(packed_bytes({shape, DType::f32, Format::blocked(16)}) == 2 * 32 * 9 * 4);
  CHECK_THROWS_AS(packed_bytes({shape, DType::f32, Format::opaque(1)}), Error);
}
