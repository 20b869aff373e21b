// The library behind the CPU backend.
#pragma once

#include <string>

namespace lockstep {

// Its name and version, as loaded: "oneDNN 2.6.3".
std::string cpu_library_version();

}  // namespace lockstep
