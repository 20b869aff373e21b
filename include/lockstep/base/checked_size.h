// Arithmetic on sizes that a file declares. A declared size may be negative, may overflow when it is multiplied, and
// may be larger than the file; it is checked here before anything is allocated or read by it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

// Returns the product of `factors`, 1 if there are none, nothing if a factor is negative or the product exceeds
// int64_t.
std::optional<int64_t> checked_product(std::span<const int64_t> factors);

// A length in bytes that `what` declares, and the number of bytes that are left to read.
struct DeclaredLength {
  std::string_view what;  // for the message: the file and the part of it, "a.png: chunk tEXt"
  uint64_t declared = 0;
  uint64_t available = 0;
  ExitCode blame = ExitCode::data;
};

// Throws Error when more bytes are declared than are available.
void require_available(const DeclaredLength& length);

}  // namespace lockstep
