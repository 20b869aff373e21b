// The library behind the CPU backend.
#pragma once

#include <string>

namespace lockstep {

// Its name and version, as loaded: "oneDNN 2.6.3".
std::string cpu_library_version();

// Whether this processor has instructions for products of bfloat16 (AVX512_BF16 or AMX) and the library may use them.
bool cpu_computes_bf16();

}  // namespace lockstep
