// Lets a communication thread sleep until this rank or another one has work for it.
#pragma once

#include <chrono>
#include <cstdint>

namespace lockstep {

// A futex word that counts rings. One thread sleeps on it, and any thread may ring it; if the word is in shared memory,
// so may threads of other processes. It has no lock that a process could hold, so it stays usable when a process dies.
class Doorbell {
 public:
  // The word must outlive the bell.
  explicit Doorbell(uint32_t& word) : word_(&word) {}

  // Returns the number of rings so far. To miss none, call it before looking for work and pass the result to wait().
  uint32_t rings() const;
  void ring() const;
  // Sleeps until there have been more rings than `seen`, at most for `longest`. May return early.
  void wait(uint32_t seen, std::chrono::microseconds longest) const;

 private:
  uint32_t* word_;
};

// Decides how long a communication thread sleeps when no operation has progressed. While a thread is in wait(), the
// cores are idle, so the communication thread spins for a short time first. Otherwise it leaves the cores to
// computation.
class PollPause {
 public:
  struct Reason {
    bool waiting = false;  // a thread is in Communicator::wait()
    bool polling = false;  // operations use MPI, which progresses only when it is called and rings no bell
  };
  void progressed() { idle_since_ = 0; }
  // Sleeps until there have been more rings than `seen`, or for a time that depends on `reason`.
  void wait(const Doorbell& bell, uint32_t seen, const Reason& reason);

 private:
  double idle_since_ = 0;
  std::chrono::microseconds sleep_{0};
};

}  // namespace lockstep
