#include "app/stop_signals.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/thread_name.h"

namespace lockstep {
namespace {

constexpr int64_t kSameRequestSeconds = 5;

// Globals, because a signal handler has no other data. Lock-free atomics are safe in it.
std::atomic<bool> requested{false};
std::atomic<int64_t> first_request_seconds{0};  // 0: none yet
std::atomic<int> first_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

void on_signal(int signal) {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t seconds = now.tv_sec + 1;  // never 0, even just after the machine has booted
  int64_t first = 0;
  // One atomic step, because another signal may interrupt this handler or arrive on another thread.
  if (!first_request_seconds.compare_exchange_strong(first, seconds) && seconds - first > kSameRequestSeconds) {
    ::_exit(128 + signal);
  }
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
  requested = true;
}

constexpr timespec kLookEvery{.tv_sec = 0, .tv_nsec = 100'000'000};

bool started_with_nohup = false;

// UCX, which Open MPI 5 loads, handles SIGHUP from the moment that it is loaded. So this runs before the libraries'
// initializers do.
void note_nohup() {
  struct sigaction action {};
  started_with_nohup = ::sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

[[gnu::section(".preinit_array"), gnu::used]] void (*const note_first)() = note_nohup;

// SIGHUP is a request as well, unless the process was started with nohup.
std::vector<int> stop_signal_numbers() {
  std::vector<int> numbers = {SIGUSR1, SIGTERM, SIGINT};
  if (!started_with_nohup) numbers.push_back(SIGHUP);
  return numbers;
}

sigset_t stop_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : stop_signal_numbers()) ::sigaddset(&signals, signal);
  return signals;
}

void receive(const std::stop_token& stop) {
  const sigset_t signals = stop_signals();
  while (!stop.stop_requested()) {
    const int signal = ::sigtimedwait(&signals, nullptr, &kLookEvery);
    if (signal > 0) on_signal(signal);
  }
}

}  // namespace

StopSignals::StopSignals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : stop_signal_numbers()) {
    require(::sigaction(signal, &action, nullptr) == 0, "signal {} cannot be handled", signal);
  }
  const sigset_t signals = stop_signals();
  require(::pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0, "signals cannot be blocked");
  receiver_ = std::jthread([](const std::stop_token& stop) {
    name_thread("signals");
    receive(stop);
  });
}

const std::atomic<bool>& stop_requested() { return requested; }

int first_stop_signal() { return first_signal; }

void hold_stop_signals() {
  // If the process executes itself again, an ignored signal stays ignored, but a library's handler would not.
  if (started_with_nohup) ::signal(SIGHUP, SIG_IGN);
  const sigset_t signals = stop_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void release_stop_signals() {
  const sigset_t signals = stop_signals();
  ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace lockstep
