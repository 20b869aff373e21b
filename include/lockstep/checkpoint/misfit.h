// Reports in one message how a file does not fit a model.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Each problem is a text that names a parameter or an array.
struct Misfit {
  std::vector<std::string> missing;    // parameters that the file lacks
  std::vector<std::string> different;  // arrays of another shape
  std::vector<std::string> extra;      // names of the file that the model does not have
  std::vector<std::string> other;

  bool none() const { return missing.empty() && different.empty() && extra.empty() && other.empty(); }
  // Returns "a is missing; b is ...; and 7 more" with at most ten problems. Every kind is represented, so that for a
  // file with completely different names, names of the model and of the file are shown.
  std::string text() const;
};

}  // namespace lockstep
