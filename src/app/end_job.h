// The end of a job for an error that this rank alone may have.
#pragma once

#include <functional>

#include "lockstep/dist/agreement.h"

namespace lockstep {

// Called while an exception is handled: says what it is, does `last`, which must not wait for other ranks, and ends all
// of them. Finalizing here would hang the others for ever.
[[noreturn]] void end_job(const std::function<void()>& last = {}) noexcept;

// Runs `work`, which exchanges data between ranks. An error that they do not agree on ends the job on the spot, before
// anything is destroyed: a reduction in flight may still write to the arenas, and a destructor may wait for a thread
// that is stuck.
template <class Work>
auto run_or_end_job(const Work& work, const std::function<void()>& last = {}) {
  try {
    return work();
  } catch (const AgreedError&) {
    throw;
  } catch (...) {
    end_job(last);
  }
}

}  // namespace lockstep
