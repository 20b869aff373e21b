// Gathers different numbers of values from the ranks.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/comm/group/process_group.h"

namespace lockstep {

// Collective. Returns the values of all ranks, in the order of the ranks; each may have any number of them.
template <class T>
std::vector<T> gather_values(ProcessGroup& group, std::span<const T> mine, const Timeout& wait) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::string all;
  for (const std::string& part :
       group.all_gather(std::string(reinterpret_cast<const char*>(mine.data()), mine.size_bytes()), wait)) {
    all += part;
  }
  std::vector<T> values(all.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), all.data(), all.size());
  return values;
}

}  // namespace lockstep
