// The lines in which mpirun 5 reports that a rank ended with another exit code than 0. No option turns them off.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// Removes them from mpirun's standard error if the code is one that the ranks explain themselves. Everything else
// passes line by line. Used by one thread.
class EpilogueFilter {
 public:
  // Adds `text`, which mpirun has written, and returns what can be printed now.
  std::string pass(std::string_view text);
  // Returns what is left to print after mpirun has ended.
  std::string rest();

 private:
  std::string held_;        // written, but not yet passed
  size_t checked_ = 0;      // bytes of it, in whole lines that can be the beginning of an epilogue
  size_t lines_ = 0;        // number of these lines
  bool explained_ = false;  // the ranks explain the exit code in these lines
};

}  // namespace lockstep
