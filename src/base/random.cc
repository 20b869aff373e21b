#include "lockstep/base/random.h"

#include <cmath>
#include <numbers>

namespace lockstep {

double RandomStream::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - unit()));  // 1 - u is in (0, 1]
  return radius * std::cos(2.0 * std::numbers::pi * unit());
}

}  // namespace lockstep
