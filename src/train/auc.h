// Computes the area under the ROC curve.
#pragma once

#include <vector>

namespace lockstep {

// The scores of the samples of class 1 and of class 0, each in any order.
struct Scores {
  std::vector<float> positive, negative;
};

// Returns the fraction of pairs (one sample of class 1, one of class 0) in which the first has the higher score; equal
// scores count half. Pairs are counted exactly and not binned, so the result depends only on the scores. Returns NaN if
// a class has no samples or a score is NaN.
double area_under_curve(Scores scores);

}  // namespace lockstep
