// What variables of the environment say, by which tests plant faults.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>

namespace lockstep::fake_gpu {

// Of a variable A:B. One that is missing is 0.
struct TwoNumbers {
  int first = 0, second = 0;
};

// Nothing if the variable is not set, or to something else than numbers.
inline std::optional<TwoNumbers> two_numbers(const char* variable) {
  const char* const text = std::getenv(variable);
  TwoNumbers numbers;
  if (!text || std::sscanf(text, "%d:%d", &numbers.first, &numbers.second) < 1) return {};
  return numbers;
}

// What the variable WHOSE:N says for a rank or a device; 0: nothing.
inline int number_for(const char* variable, int whose) {
  const std::optional<TwoNumbers> numbers = two_numbers(variable);
  return numbers && numbers->first == whose ? numbers->second : 0;
}

}  // namespace lockstep::fake_gpu
