// The area under the ROC curve.
#pragma once

#include <vector>

namespace lockstep {

// Scores of the samples of class 1 and of class 0, in any order.
struct Scores {
  std::vector<float> positive, negative;
};

// The share of pairs (one sample of class 1, one of class 0) in which the first has the higher score; equal scores
// count half. Pairs are counted, not binned, so the result depends on nothing but the scores. NaN when a class has no
// sample or a score is NaN.
double area_under_curve(Scores scores);

}  // namespace lockstep
