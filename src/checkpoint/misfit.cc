#include "lockstep/checkpoint/misfit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace lockstep {

std::string Misfit::text() const {
  constexpr size_t kShown = 10;
  const std::array kinds{&missing, &different, &extra, &other};
  size_t left = 0;
  std::array<size_t, kinds.size()> shown{};
  size_t room = kShown;
  for (size_t i = 0; i < kinds.size(); ++i) {
    shown[i] = std::min(kinds[i]->size(), kShown / kinds.size());
    room -= shown[i];
  }
  std::vector<std::string> problems;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const size_t more = std::min(room, kinds[i]->size() - shown[i]);
    shown[i] += more;
    room -= more;
    left += kinds[i]->size() - shown[i];
    problems.insert(problems.end(), kinds[i]->begin(), kinds[i]->begin() + shown[i]);
  }
  return fmt::format("{}{}", fmt::join(problems, "; "), left > 0 ? fmt::format("; and {} more", left) : "");
}

}  // namespace lockstep
