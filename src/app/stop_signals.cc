#include "app/stop_signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr long kSameRequestSeconds = 5;

// A signal handler can reach nothing but globals. Lock-free atomics are safe in it.
std::atomic<bool> requested{false};
std::atomic<long> first_request_seconds{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<long>::is_always_lock_free);

void on_signal(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  if (!requested.exchange(true)) {
    first_request_seconds = now.tv_sec;
  } else if (now.tv_sec - first_request_seconds > kSameRequestSeconds) {
    ::_exit(128 + signal);
  }
}

}  // namespace

void install_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (int signal : {SIGUSR1, SIGTERM, SIGINT}) {
    require(::sigaction(signal, &action, nullptr) == 0, "signal {} cannot be handled", signal);
  }
}

const std::atomic<bool>& stop_requested() { return requested; }

}  // namespace lockstep
