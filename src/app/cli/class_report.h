// The report of `trainer evaluate` on single classes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// How often samples of one class were predicted as another. Used by rank 0 alone.
class ClassReport {
 public:
  // `names` are those of the model's outputs; a class without one is called by its number.
  ClassReport(int64_t classes, const std::vector<std::string>& names);

  void add(int64_t label, int64_t predicted, int64_t samples = 1) { counts_[{label, predicted}] += samples; }

  // Returns a line for each class that has samples or was predicted. Precision is the share of its predictions that are
  // right, recall the share of its samples that are found, support the number of its samples; "-" if there are none.
  std::string table() const;

  // Returns the confusion matrix as CSV: a row for each label, a column for each predicted class, both with names.
  std::string csv() const;

 private:
  std::vector<std::string> names_;
  std::vector<std::string> shown_;                         // the same for a terminal
  std::map<std::pair<int64_t, int64_t>, int64_t> counts_;  // by label and predicted class
};

}  // namespace lockstep
