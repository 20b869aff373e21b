// Follows virtual data sets to the values that they are made of.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "io/hdf5_internal.h"

namespace lockstep::hdf5 {

// One walk from the data set that is opened down to those whose values lie in a file. Use with the lock held.
class SourceWalk {
 public:
  // Where the file stands alone, values may come from no other data set.
  explicit SourceWalk(bool stands_alone) : stands_alone_(stands_alone) {}

  // Throws when a data set must not be read: its values are raw bytes of another file, or come from data sets that are
  // not there, cannot be read or come from itself, at any depth. The library takes fill values in place of a source
  // that it does not find or cannot open, and does not end where a data set is its own source.
  void require_values(hid_t dataset, hid_t creation, const Context& context);

 private:
  using Source = std::pair<std::string, std::string>;  // a file and a data set

  bool require_source(const std::string& parent, const Source& named, bool optional, const Context& context);
  void enter(const Source& source, const Hdf5File& file, const Context& context);

  bool stands_alone_;
  std::set<Source> way_;               // to the present data set, without the first
  std::map<Source, size_t> whole_at_;  // the deepest that it was found whole at
};

}  // namespace lockstep::hdf5
