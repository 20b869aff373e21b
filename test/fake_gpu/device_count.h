// How many devices there are: FAKE_GPU_DEVICES, or one; no more than CUDA_VISIBLE_DEVICES names.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace lockstep::fake_gpu {

inline int device_count() {
  const char* const wanted = std::getenv("FAKE_GPU_DEVICES");
  const int count = wanted ? std::atoi(wanted) : 1;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!visible) return count;
  return std::min(count, 1 + static_cast<int>(std::ranges::count(std::string_view(visible), ',')));
}

}  // namespace lockstep::fake_gpu
