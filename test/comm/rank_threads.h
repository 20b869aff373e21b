// Runs the ranks of a LocalHub as threads.
#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "test/comm/local_communicator.h"

namespace lockstep::testing {

// Calls `rank_main` once a rank, each in its own thread; returns what they threw, by rank.
inline std::vector<std::exception_ptr> run_ranks(int size, double abort_seconds,
                                                 const std::function<void(LocalCommunicator&)>& rank_main) {
  LocalHub hub(size);
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      try {
        LocalCommunicator communicator(hub, {.rank = r, .abort_seconds = abort_seconds});
        rank_main(communicator);
      } catch (...) {
        errors[static_cast<size_t>(r)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace lockstep::testing
