// Checks virtual data sets and their sources before the library reads them.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "io/hdf5_internal.h"

namespace lockstep::hdf5 {

// One walk from the opened data set to the data sets that contain the values. Used with the lock held.
class SourceWalk {
 public:
  // With `stands_alone`, values may not come from other data sets.
  explicit SourceWalk(bool stands_alone) : stands_alone_(stands_alone) {}

  // Throws if the data set must not be read: its values are raw bytes of another file, or its sources are missing,
  // unreadable or the data set itself, at any depth. The library would use fill values instead of a source that it
  // cannot open, and would not return if a data set is its own source.
  void require_values(hid_t dataset, hid_t creation, const Context& context);

 private:
  using Source = std::pair<std::string, std::string>;  // a file and a data set

  bool require_source(const std::string& parent, const Source& named, bool optional, const Context& context);
  void enter(const Source& source, const Hdf5File& file, const Context& context);

  bool stands_alone_;
  std::set<Source> way_;               // from the first data set (excluded) to the current one
  std::map<Source, size_t> whole_at_;  // the greatest depth at which it was checked
};

}  // namespace lockstep::hdf5
