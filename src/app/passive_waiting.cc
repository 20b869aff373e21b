#include "app/passive_waiting.h"

#include <sched.h>
#include <unistd.h>

#include <cstdlib>

namespace lockstep {

namespace {

// About half a millisecond: longer than threads wait in most kernels, and short enough not to take cores from others.
constexpr const char* kSpins = "50000";

// The runtime itself spins only briefly if a process has more threads than processors.
bool has_one_processor() {
  cpu_set_t mask;
  return ::sched_getaffinity(0, sizeof mask, &mask) == 0 && CPU_COUNT(&mask) == 1;
}

}  // namespace

void wait_passively(char** argv) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread yet
  if (std::getenv("OMP_WAIT_POLICY") || has_one_processor()) return;
  if (::setenv("OMP_WAIT_POLICY", "passive", 1) != 0 || ::setenv("GOMP_SPINCOUNT", kSpins, 0) != 0) return;
  ::execv("/proc/self/exe", argv);  // returns only on failure; threads then spin, which is only slower
}

}  // namespace lockstep
