// How a communication thread sleeps until there is something to do, for it or from another rank.
#pragma once

#include <chrono>
#include <cstdint>

namespace lockstep {

// A word that counts rings, on which one thread sleeps and which any thread may ring: a thread of another process too,
// where the word is in memory that processes share. Nobody holds anything meanwhile, so the death of a process leaves
// it usable.
class Doorbell {
 public:
  // The word must outlive the bell.
  explicit Doorbell(uint32_t& word) : word_(&word) {}

  // Whoever looks for work after this and sleeps with its result misses no ring.
  uint32_t rings() const;
  void ring() const;
  // Sleeps until there have been more rings than `seen`, at most for this long.
  void wait(uint32_t seen, std::chrono::microseconds longest) const;

 private:
  uint32_t* word_;
};

// How long a communication thread sleeps when nothing has got on. While wait() waits, the cores are idle: it looks
// again at once for a short while. Otherwise it leaves them to computing.
class PollPause {
 public:
  struct Reason {
    bool joining = false;
    bool polling = false;  // for MPI, which makes no progress while nobody asks and rings no bell
  };
  void progressed() { idle_since_ = 0; }
  // Until there have been more rings than `seen`, or as long as is good.
  void wait(const Doorbell& bell, uint32_t seen, const Reason& reason);

 private:
  double idle_since_ = 0;
  std::chrono::microseconds sleep_{0};
};

}  // namespace lockstep
