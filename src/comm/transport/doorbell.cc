#include "comm/transport/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <ctime>
#include <thread>

#include "lockstep/base/clock.h"

namespace lockstep {
namespace {

// How long to spin. A ring wakes a sleeping thread in less than kSpinForRing, so spinning longer gains nothing. MPI
// progresses in small steps that each need a poll, so the thread spins longer for MPI.
constexpr double kSpinForRing = 0.0002, kSpinForMpi = 0.005;
constexpr std::chrono::microseconds kShortestPoll{20}, kLongestPoll{200};
constexpr std::chrono::seconds kLongestSleep{1};

constexpr int64_t kNanosecondsPerMicrosecond = 1000;
constexpr int64_t kMicrosecondsPerSecond = 1'000'000;

static_assert(std::atomic_ref<uint32_t>::is_always_lock_free);

}  // namespace

uint32_t Doorbell::rings() const { return std::atomic_ref(*word_).load(std::memory_order_acquire); }

void Doorbell::ring() const {
  std::atomic_ref(*word_).fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, word_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// std::atomic::wait has no timeout and works only between threads of one process.
void Doorbell::wait(uint32_t seen, std::chrono::microseconds longest) const {
  const timespec limit{.tv_sec = longest.count() / kMicrosecondsPerSecond,
                       .tv_nsec = longest.count() % kMicrosecondsPerSecond * kNanosecondsPerMicrosecond};
  // The result does not matter: whether the thread was woken, timed out or did not sleep, the caller looks for work
  // again.
  syscall(SYS_futex, word_, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void PollPause::wait(const Doorbell& bell, uint32_t seen, const Reason& reason) {
  const double now = monotonic_seconds();
  if (idle_since_ == 0) {
    idle_since_ = now;
    sleep_ = kShortestPoll;
  }
  if (reason.waiting && now - idle_since_ < (reason.polling ? kSpinForMpi : kSpinForRing)) {
    std::this_thread::yield();
    return;
  }
  bell.wait(seen, reason.polling ? sleep_ : kLongestSleep);
  sleep_ = std::min(sleep_ * 2, kLongestPoll);
}

}  // namespace lockstep
