// A Communicator for device memory that stages all data in host memory.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/comm/transport/communicator.h"

namespace lockstep {

// Copies the memory of each operation to pinned host memory on a separate stream, runs the operation there with another
// communicator, and copies the result back in wait(). It serves several ranks on one GPU, and systems without NCCL.
// Each call starts the operations whose copies have arrived since the previous call, so most communication overlaps
// with the backward pass.
//
// Owned by main; the backend and the streams must outlive it. Only the thread that runs the step may call it; wait()
// blocks that thread.
class StagedCommunicator final : public Communicator {
 public:
  // `host` must work on host memory, as MpiCommunicator does.
  StagedCommunicator(const Backend& backend, std::unique_ptr<Communicator> host);
  // Waits for copies that are in flight.
  ~StagedCommunicator() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  void all_reduce(Stream& stream, std::span<float> values, std::string_view label) override;
  void all_reduce(Stream& stream, std::span<double> values, std::string_view label) override;
  void all_reduce(Stream& stream, HalfSpan values, std::string_view label) override;
  double all_reduce_now(Stream& stream, std::span<float> values, std::string_view label) override;
  void broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) override;
  double wait(Stream& stream) override;
  std::string plan() const override { return host_->plan(); }
  CommStatistics statistics() const override { return host_->statistics(); }
  bool stream_ordered() const override { return size() == 1; }

 private:
  enum class Kind : uint8_t { all_reduce_floats, all_reduce_doubles, all_reduce_halves, broadcast };
  struct Request {
    Kind kind;
    std::span<std::byte> memory;
    std::string label;
    int root = 0;                  // of a broadcast
    DType half_type = DType::f32;  // of all_reduce_halves
  };
  // The pinned memory of the n-th operation since a wait(), with the events before and after the copy into it.
  struct Slot {
    Buffer memory;
    std::unique_ptr<Event> ready, arrived;
  };
  Slot make_slot() const { return {{}, backend_.make_event(), backend_.make_event()}; }
  void download(Stream& stream, Slot& slot, std::span<const std::byte> memory);
  void enqueue(Stream& stream, Request request);
  void start(size_t index);
  void start_arrived();

  const Backend& backend_;
  const std::unique_ptr<Communicator> host_;
  const std::unique_ptr<Stream> transfer_;
  Slot immediate_ = make_slot();  // for all_reduce_now()
  std::vector<Slot> slots_;
  std::vector<Request> requests_;  // since the last wait()
  size_t started_ = 0;             // number of these that have been started
};

}  // namespace lockstep
