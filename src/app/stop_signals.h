#pragma once

#include <atomic>
#include <thread>

namespace lockstep {

// SIGUSR1, SIGTERM and SIGINT ask for "save and stop". Repeats within five seconds are the same request (a launcher may
// send a signal twice); a later one ends the process at once, with 128 + the signal's number as exit code.
//
// A thread of its own takes them: no thread that computes may, because oneDNN's matrix products keep the stack pointer
// in heap memory while they run (2.6, seen with valgrind), and the kernel would write the signal's frame there. Threads
// that started before may take them too and must not compute.
//
// One in a process, made on the main thread before threads that compute; the signals stay blocked on it afterwards.
class StopSignals {
 public:
  StopSignals();
  const std::atomic<bool>& requested() const;

 private:
  std::jthread receiver_;
};

}  // namespace lockstep
