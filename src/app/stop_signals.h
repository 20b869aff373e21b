#pragma once

#include <atomic>

namespace lockstep {

// SIGUSR1, SIGTERM and SIGINT ask for "save and stop". Repeats within five seconds are the same request (a launcher may
// send a signal twice); a later one ends the process at once, with 128 + the signal's number as exit code.
// Install once, from the main thread, before other threads start.
void install_stop_signals();
const std::atomic<bool>& stop_requested();

}  // namespace lockstep
