#include "lockstep/tensor/half.h"

#include <cmath>
#include <limits>
#include <vector>

#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float rounded(DType type, float x) { return type == DType::bf16 ? from_bf16(to_bf16(x)) : from_f16(to_f16(x)); }

}  // namespace

TEST_CASE("every number of 16 bits comes back from float as it was") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto x = static_cast<uint16_t>(bits);
    if (std::isnan(from_bf16(x))) {
      CHECK(std::isnan(from_bf16(to_bf16(from_bf16(x)))));
    } else if (to_bf16(from_bf16(x)) != x) {
      FAIL("bf16 " << bits);
    }
    if (std::isnan(from_f16(x))) {
      CHECK(std::isnan(from_f16(to_f16(from_f16(x)))));
    } else if (to_f16(from_f16(x)) != x) {
      FAIL("f16 " << bits);
    }
  }
}

TEST_CASE("known values of bfloat16 and half precision") {
  CHECK(to_bf16(1.0F) == 0x3f80);
  CHECK(to_bf16(-2.5F) == 0xc020);
  CHECK(to_bf16(3.14159265F) == 0x4049);
  CHECK(to_f16(1.0F) == 0x3c00);
  CHECK(to_f16(-2.5F) == 0xc100);
  CHECK(to_f16(3.14159265F) == 0x4248);
  CHECK(to_f16(65504.0F) == 0x7bff);
  CHECK(to_f16(0x1p-24F) == 0x0001);
  CHECK(to_f16(0x1p-14F) == 0x0400);
  CHECK(to_f16(-0.0F) == 0x8000);
  CHECK(from_f16(0x0001) == 0x1p-24F);
  CHECK(from_f16(0x03ff) == 0x1p-14F - 0x1p-24F);
}

TEST_CASE("halfway values go to the even neighbour, others to the nearest") {
  CHECK(rounded(DType::bf16, 1 + 0x1p-8F) == 1);
  CHECK(rounded(DType::bf16, 1 + 3 * 0x1p-8F) == 1 + 0x1p-6F);
  CHECK(rounded(DType::bf16, 1 + 0x1p-8F + 0x1p-20F) == 1 + 0x1p-7F);
  CHECK(rounded(DType::f16, 1 + 0x1p-11F) == 1);
  CHECK(rounded(DType::f16, 1 + 3 * 0x1p-11F) == 1 + 0x1p-9F);
  CHECK(rounded(DType::f16, 0x1p-25F) == 0);
  CHECK(rounded(DType::f16, 3 * 0x1p-25F) == 0x1p-23F);
  CHECK(rounded(DType::f16, 0x1p-14F - 0x1p-26F) == 0x1p-14F);
}

TEST_CASE("what is too large becomes infinite, and NaN stays NaN") {
  for (const DType type : {DType::bf16, DType::f16}) {
    CHECK(rounded(type, kInfinity) == kInfinity);
    CHECK(rounded(type, -kInfinity) == -kInfinity);
    CHECK(std::isnan(rounded(type, kNan)));
    CHECK(std::isnan(rounded(type, -kNan)));
  }
  CHECK(rounded(DType::bf16, std::numeric_limits<float>::max()) == kInfinity);
  CHECK(rounded(DType::f16, 65519) == 65504);
  CHECK(rounded(DType::f16, 65520) == kInfinity);
  CHECK(rounded(DType::f16, -1e30F) == -kInfinity);
  CHECK(std::isnan(from_bf16(to_bf16(std::bit_cast<float>(0x7f800001U)))));  // whose mantissa is in the lower half
}

TEST_CASE("whole ranges are converted and added like single values") {
  std::vector<float> values(1003);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.37F * static_cast<float>(i) - 100;
  for (const DType type : {DType::bf16, DType::f16}) {
    std::vector<uint16_t> narrow(values.size());
    std::vector<float> wide(values.size()), sums(values.size(), 1);
    to_half(type, values, narrow);
    from_half(type, narrow, wide);
    add_half(type, narrow, sums);
    for (size_t i = 0; i < values.size(); ++i) {
      REQUIRE(wide[i] == rounded(type, values[i]));
      REQUIRE(sums[i] == 1 + wide[i]);
    }
  }
  std::vector<uint16_t> shorter(3);
  CHECK_THROWS_WITH(to_half(DType::bf16, values, shorter), ContainsSubstring("1003 values into 3"));
  CHECK_THROWS_WITH(to_half(DType::f32, values, shorter), ContainsSubstring("3"));
}
