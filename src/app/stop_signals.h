#pragma once

#include <atomic>
#include <thread>

namespace lockstep {

// SIGUSR1, SIGTERM, SIGINT and, unless it is ignored (nohup), SIGHUP ask for "save and stop". Repeats within five
// seconds are the same request (a launcher may send a signal twice); a later one ends the process at once, with 128 +
// the signal's number as exit code.
//
// A thread of its own takes them: no thread that computes may, because oneDNN's matrix products keep the stack pointer
// in heap memory while they run (2.6, seen with valgrind), and the kernel would write the signal's frame there. Threads
// that started before may take them too and must not compute.
//
// One in a process, made on the main thread before threads that compute and before MPI starts; the signals stay blocked
// on it afterwards.
class StopSignals {
 public:
  StopSignals();

 private:
  std::jthread receiver_;
};

// Whether a stop has been requested in this process.
const std::atomic<bool>& stop_requested();

// The number of the first stop signal; 0: none came.
int first_stop_signal();

// Blocks the stop signals on this thread, first of all in main: one that comes early then waits for StopSignals, even
// over an exec. Releasing them lets it end the process, as the other subcommands want.
void hold_stop_signals();
void release_stop_signals();

}  // namespace lockstep
