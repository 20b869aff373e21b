#pragma once

#include <atomic>
#include <thread>

namespace lockstep {

// Receives the signals that request "save and stop": SIGUSR1, SIGTERM, SIGINT and, unless it is ignored (nohup),
// SIGHUP. Repeats within five seconds count as the same request, because a launcher may send a signal twice. A later
// one ends the process at once, with 128 + the number of the signal as exit code.
//
// A separate thread receives them. A thread that computes must not, because the matrix products of oneDNN keep the
// stack pointer in heap memory (2.6, seen with valgrind), where the kernel would write the frame of the signal. Threads
// that started earlier may receive signals, too, so they must not compute.
//
// There is one per process. It is created on the main thread before MPI and before threads that compute; the signals
// then stay blocked on the main thread.
class StopSignals {
 public:
  StopSignals();

 private:
  std::jthread receiver_;
};

// Returns whether a stop has been requested in this process.
const std::atomic<bool>& stop_requested();

// Returns the number of the first stop signal, or 0 if there was none.
int first_stop_signal();

// hold_stop_signals() blocks the stop signals on this thread, or ignores SIGHUP again (nohup) if a library handles it.
// It is the first call in main, so that an early signal waits for StopSignals, even across an exec. After
// release_stop_signals() such a signal ends the process, as is usual for the other subcommands.
void hold_stop_signals();
void release_stop_signals();

}  // namespace lockstep
