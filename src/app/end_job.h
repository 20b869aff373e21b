// The end of a job for an error that this rank alone may have.
#pragma once

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/dist/agreement.h"

namespace lockstep {

// What the user reads of an error. Internal ones are for developers: they name the line.
std::string message_of(const Error& error);

// Called while an exception is handled: says what it is and ends all ranks. Finalizing here would hang the others for
// ever.
[[noreturn]] void end_job() noexcept;

// Runs `work`, which exchanges data between ranks. An error that they do not agree on ends the job on the spot, before
// anything is destroyed: a reduction in flight may still write to the arenas, and a destructor may wait for a thread
// that is stuck.
template <class Work>
auto run_or_end_job(const Work& work) {
  try {
    return work();
  } catch (const AgreedError&) {
    throw;
  } catch (...) {
    end_job();
  }
}

}  // namespace lockstep
