// The entry point that libFuzzer calls, compiled once a target: LOCKSTEP_FUZZ_TARGET is its function.
#include "lockstep/base/log.h"
#include "test/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::fuzz::LOCKSTEP_FUZZ_TARGET(std::as_bytes(std::span(data, size)));
  lockstep::log_repeated_warnings();  // forgets them: each input warns of something else
  return 0;
}
