// What of a file does not fit a model, in one message.
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
  // "a is missing; b is ...; and 7 more": about ten in all, some of every kind, so that a file whose names are all
  // others shows both the model's and its own.
  std::string text() const;
};

}  // namespace lockstep
