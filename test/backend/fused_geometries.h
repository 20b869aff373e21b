// Convolutions with which fusions are tested: a padded one, one of single pixels, one with strides, and a flat one.
#pragma once

#include "lockstep/ops/ops.h"

namespace lockstep::test {

struct Geometry {
  Shape x;
  int64_t outputs;
  Window window;
};
inline const Geometry kGeometries[] = {{{2, 16, 9, 9}, 24, {3, 3, 1, 1, 1, 1}},
                                       {{3, 8, 5, 5}, 16, {1, 1, 1, 1, 0, 0}},
                                       {{2, 16, 9, 9}, 8, {3, 3, 2, 2, 0, 0}},
                                       {{2, 16, 7, 7}, 16, {1, 7, 1, 1, 0, 3}}};

}  // namespace lockstep::test
