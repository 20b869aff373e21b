#include "app/passive_waiting.h"

#include <unistd.h>

#include <cstdlib>

namespace lockstep {

namespace {

// About half a millisecond: longer than threads wait in most kernels, and short enough not to take cores from others.
constexpr const char* kSpins = "50000";

}  // namespace

void wait_passively(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY")) return;  // NOLINT(concurrency-mt-unsafe): no other thread yet
  if (::setenv("OMP_WAIT_POLICY", "passive", 1) != 0 || ::setenv("GOMP_SPINCOUNT", kSpins, 0) != 0) return;
  ::execv("/proc/self/exe", argv);  // returns only on failure; threads then spin, which is only slower
}

}  // namespace lockstep
