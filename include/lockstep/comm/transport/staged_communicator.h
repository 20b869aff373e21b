// Communicator for memory that the host cannot address, by way of host memory.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/comm/transport/communicator.h"

namespace lockstep {

// Brings each operation's memory to pinned memory on a stream of its own, lets another communicator do it there, and
// takes the result back in wait(). For several ranks on one GPU, and where there is no NCCL. The next call starts what
// has arrived meanwhile, so most sums travel while backward still computes.
//
// Owned by main; backend and streams must outlive it. Used by the thread that runs the step, which waits in wait().
class StagedCommunicator final : public Communicator {
 public:
  // `host`: works on host memory, as MpiCommunicator does.
  StagedCommunicator(const Backend& backend, std::unique_ptr<Communicator> host);
  // Waits for copies under way.
  ~StagedCommunicator() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void all_reduce(Stream& stream, std::span<float> values, std::string_view label) override;
  void all_reduce(Stream& stream, std::span<double> values, std::string_view label) override;
  void all_reduce(Stream& stream, HalfSpan values, std::string_view label) override;
  double all_reduce_now(Stream& stream, std::span<float> values, std::string_view label) override;
  void broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) override;
  double wait(Stream& stream) override;
  CommStatistics statistics() const override { return host_->statistics(); }
  bool stream_ordered() const override { return size() == 1; }

 private:
  enum class Kind : uint8_t { sum_floats, sum_doubles, sum_halves, broadcast };
  struct Request {
    Kind kind;
    std::span<std::byte> memory;
    std::string label;
    int root = 0;                  // of a broadcast
    DType half_type = DType::f32;  // of a sum of halves
  };
  // Pinned memory of the n-th operation since a join, and the copy into it.
  struct Place {
    Buffer memory;
    std::unique_ptr<Event> ready, arrived;
  };
  Place make_place() const { return {{}, backend_.make_event(), backend_.make_event()}; }
  void download(Stream& stream, Place& place, std::span<const std::byte> memory);
  void enqueue(Stream& stream, Request request);
  void start(size_t index);
  void start_arrived();

  const Backend& backend_;
  const std::unique_ptr<Communicator> host_;
  const std::unique_ptr<Stream> transfer_;
  Place at_once_ = make_place();
  std::vector<Place> places_;
  std::vector<Request> requests_;  // since the last join
  size_t started_ = 0;             // of those
};

}  // namespace lockstep
