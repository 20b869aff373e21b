#include "lockstep/base/checked_size.h"

#include <algorithm>

namespace lockstep {

std::optional<int64_t> checked_product(std::span<const int64_t> factors) {
  if (std::ranges::any_of(factors, [](int64_t factor) { return factor < 0; })) return std::nullopt;
  if (std::ranges::find(factors, 0) != factors.end()) return 0;
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) return std::nullopt;
  }
  return product;
}

void require_available(const DeclaredLength& length) {
  if (length.declared <= length.available) return;
  fail(length.blame, "{} declares {} bytes, but {} are left", length.what, length.declared, length.available);
}

}  // namespace lockstep
