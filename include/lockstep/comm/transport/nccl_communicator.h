// Communicator over NCCL: every rank on a GPU of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/transport/communicator.h"

namespace lockstep {

class ProcessGroup;

// One rank's connection to the others through the library, as thin as can be: the calls alone, no waiting. The CUDA
// plugin has the real one, tests have others. A connection is used by two threads: one that enqueues, one that asks.
class NcclLink {
 public:
  enum class State : uint8_t { ready, in_progress, failed };
  struct Report {
    State state = State::ready;
    std::string reason;  // of a failure
  };

  virtual ~NcclLink() = default;
  virtual Report report() = 0;  // about the connection itself and about what was enqueued
  // Enqueue, in place; `stream` is the backend's. Throw Error(internal) when the library refuses.
  virtual void all_reduce(Stream& stream, std::span<float> values) = 0;
  virtual void all_reduce(Stream& stream, std::span<double> values) = 0;
  virtual void all_reduce(Stream& stream, HalfSpan values) = 0;
  virtual void broadcast(Stream& stream, std::span<std::byte> bytes, int root) = 0;
  // Ends what is under way, on the device too, and frees the connection; may wait for as long as captured work with
  // operations of this link exists. Nothing else may be called from then on but abort again, when it has returned.
  virtual void abort() noexcept = 0;
};

// What a connection is made of.
struct NcclAddress {
  std::vector<std::byte> id;  // the same on all ranks
  int rank = 0;
  int size = 1;
  std::string algorithm = "ring";  // comm.algorithm: ring | tree | auto
};

class NcclLibrary {
 public:
  virtual ~NcclLibrary() = default;
  virtual std::vector<std::byte> make_id() = 0;
  // Begins to connect and returns at once; report() says when it is done.
  virtual std::unique_ptr<NcclLink> connect(const NcclAddress& address) = 0;
};

// The library of the CUDA plugin. Throws Error(config) when the plugin cannot be opened.
std::unique_ptr<NcclLibrary> open_nccl();

struct NcclOptions {
  std::string algorithm = "ring";
  double wait_seconds = 600;  // to wait for all ranks, when connecting and when an operation is enqueued
  double abort_seconds = 5;   // after a failure, for the library to end the connection; then it is left to itself
};

// Operations run on a stream of their own, beside the one that computes, and the host never waits for them. A thread
// asks the library for errors; after one, another aborts everything under way, so that no stream hangs, and every later
// call throws it, without waiting for the abort. Ranks that are stuck without an error are the watchdog's.
class NcclCommunicator final : public Communicator {
 public:
  // Collective over the group. Throws Error(stalled) when the ranks have not found each other in time, Error(internal)
  // with NCCL's reason when it fails. The backend must outlive it.
  NcclCommunicator(ProcessGroup& group, const Backend& backend, NcclLibrary& library, const NcclOptions& options);
  // Abandons what is not finished, which is right only when the job is being aborted. Captured work with its operations
  // must be gone, unless it has failed: then it waits for the abort some seconds at most.
  ~NcclCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(Stream& stream, std::span<float> values, std::string_view label) override;
  void all_reduce(Stream& stream, std::span<double> values, std::string_view label) override;
  // Rounded where NCCL hands a partial sum on.
  void all_reduce(Stream& stream, HalfSpan values, std::string_view label) override;
  void broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) override;
  double wait(Stream& stream) override;  // returns 0: nobody waits here
  CommStatistics statistics() const override { return statistics_; }
  void check() override;
  bool stream_ordered() const override { return true; }
  void enqueue_captured(const std::function<void()>& launch) override;

 private:
  class Connection;
  class Monitor;
  template <class Enqueue>
  void enqueue(Stream& stream, std::string_view label, size_t bytes, const Enqueue& operation);

  const int rank_, size_;
  const std::unique_ptr<Stream> reduction_;
  const std::unique_ptr<Event> ready_, done_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<Monitor> monitor_;
  CommStatistics statistics_;
};

}  // namespace lockstep
