// A communicator between threads of one process: several ranks without MPI.
#pragma once

#include <memory>

#include "lockstep/comm/transport/communicator.h"

namespace lockstep {

// Connects the ranks. Owned by the test; it must outlive its communicators. Thread-safe.
class LocalHub {
 public:
  explicit LocalHub(int size);
  ~LocalHub();

 private:
  friend class LocalCommunicator;
  struct State;
  std::unique_ptr<State> state_;
};

// One rank, used by one thread. The last rank to arrive performs the operation and adds the terms in rank order, so the
// results do not depend on timing. If the ranks' calls differ in kind or length, all ranks throw Error(internal).
class LocalCommunicator final : public Communicator {
 public:
  struct Options {
    int rank = 0;
    double abort_seconds = 60;  // time limit of wait()
  };
  LocalCommunicator(LocalHub& hub, Options options);

  int rank() const override { return options_.rank; }
  int size() const override;
  void all_reduce(Stream& stream, std::span<float> values, std::string_view label) override;
  void all_reduce(Stream& stream, std::span<double> values, std::string_view label) override;
  void all_reduce(Stream& stream, HalfSpan values, std::string_view label) override;
  void broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) override;
  double wait(Stream& stream) override;
  CommStatistics statistics() const override { return statistics_; }

 private:
  LocalHub::State& hub_;
  const Options options_;
  CommStatistics statistics_;
};

}  // namespace lockstep
