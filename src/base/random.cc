#include "lockstep/base/random.h"

#include <cmath>
#include <numbers>

namespace lockstep {

double RandomStream::normal() {
  if (has_spare_) {
    has_spare_ = false;
    return spare_;
  }
  const double radius = std::sqrt(-2.0 * std::log(1.0 - unit()));  // 1 - u is in (0, 1]
  const double angle = 2.0 * std::numbers::pi * unit();
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return radius * std::cos(angle);
}

}  // namespace lockstep
