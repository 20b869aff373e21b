#include "lockstep/tensor/half.h"

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Calls body(to, from) with the two conversions of a type.
template <class Body>
void with_conversions(DType type, const Body& body) {
  require(type == DType::bf16 || type == DType::f16, "{} is no type of 16 bits", dtype_name(type));
  if (type == DType::bf16) {
    body([](float x) { return to_bf16(x); }, [](uint16_t x) { return from_bf16(x); });
  } else {
    body([](float x) { return to_f16(x); }, [](uint16_t x) { return from_f16(x); });
  }
}

void require_equal_length(size_t from, size_t to) { require(from == to, "{} values into {}", from, to); }

}  // namespace

void to_half(DType type, std::span<const float> from, std::span<uint16_t> to) {
  require_equal_length(from.size(), to.size());
  with_conversions(type, [&](auto narrow, auto) {
    for (size_t i = 0; i < from.size(); ++i) to[i] = narrow(from[i]);
  });
}

void from_half(DType type, std::span<const uint16_t> from, std::span<float> to) {
  require_equal_length(from.size(), to.size());
  with_conversions(type, [&](auto, auto widen) {
    for (size_t i = 0; i < from.size(); ++i) to[i] = widen(from[i]);
  });
}

void add_half(DType type, std::span<const uint16_t> values, std::span<float> sums) {
  require_equal_length(values.size(), sums.size());
  with_conversions(type, [&](auto, auto widen) {
    for (size_t i = 0; i < values.size(); ++i) sums[i] += widen(values[i]);
  });
}

}  // namespace lockstep
