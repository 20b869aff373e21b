// A Communicator over NCCL, where every rank has a GPU of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/transport/communicator.h"

namespace lockstep {

class ProcessGroup;

// One rank's NCCL communicator, reduced to the calls themselves; none of them waits. The CUDA plugin implements it with
// NCCL, tests with fakes. Two threads use a link: one that enqueues operations and one that polls report().
class NcclLink {
 public:
  enum class State : uint8_t { ready, in_progress, failed };
  struct Report {
    State state = State::ready;
    std::string reason;  // of a failure
  };

  virtual ~NcclLink() = default;
  virtual Report report() = 0;  // the state of the connection and of the operations enqueued so far
  // Enqueue an operation in place on `stream`, which is a stream of the backend. Throw Error(internal) if NCCL returns
  // an error.
  virtual void all_reduce(Stream& stream, std::span<float> values) = 0;
  virtual void all_reduce(Stream& stream, std::span<double> values) = 0;
  virtual void all_reduce(Stream& stream, HalfSpan values) = 0;
  virtual void broadcast(Stream& stream, std::span<std::byte> bytes, int root) = 0;
  // Starts to finish the connection and returns immediately; report() becomes `ready` when all operations of all ranks
  // are complete. Every rank must call it. Afterwards only report(), destroy() and abort() may be called. Throws
  // Error(internal) if NCCL returns an error.
  virtual void finalize() = 0;
  // Frees a connection that is finalized and `ready`. May block as long as captured work with operations of this link
  // exists. Afterwards nothing may be called.
  virtual void destroy() noexcept = 0;
  // Aborts all operations, also those on the device, and frees the connection. May block as long as captured work with
  // operations of this link exists. Afterwards only abort() may be called again, once this call has returned.
  virtual void abort() noexcept = 0;
};

// The parameters of a connection.
struct NcclAddress {
  std::vector<std::byte> id;  // ncclUniqueId; the same on all ranks
  int rank = 0;
  int size = 1;
  std::string algorithm = "auto";  // comm.algorithm: ring | tree | auto
};

// Creates links. Implemented by the CUDA plugin and by tests.
class NcclLibrary {
 public:
  virtual ~NcclLibrary() = default;
  virtual std::vector<std::byte> make_id() = 0;
  // Starts to connect and returns immediately; report() becomes `ready` when the connection is established.
  virtual std::unique_ptr<NcclLink> connect(const NcclAddress& address) = 0;
};

// Returns the implementation of the CUDA plugin. Throws Error(config) if the plugin cannot be opened.
std::unique_ptr<NcclLibrary> open_nccl();

struct NcclOptions {
  std::string algorithm = "auto";
  double wait_seconds = 600;  // time limit for connecting and for enqueuing an operation
  // How long the destructor waits for the other ranks before it aborts the connection, and then for the end of the
  // abort before it abandons the connection.
  double abort_seconds = 5;
};

// Operations run on a separate stream in parallel to the compute stream, and the host never waits for them. A monitor
// thread polls NCCL for errors. After an error, another thread aborts all operations, so that no stream hangs, and
// every later call throws that error without waiting for the abort. The watchdog handles ranks that are stuck without
// an error.
class NcclCommunicator final : public Communicator {
 public:
  // Collective over the group. Throws Error(stalled) if the ranks cannot connect within wait_seconds, and
  // Error(internal) with NCCL's reason if NCCL fails. The group and the backend must outlive it.
  NcclCommunicator(ProcessGroup& group, const Backend& backend, std::shared_ptr<NcclLibrary> library,
                   NcclOptions options);
  // Waits until all ranks have come here, so that no rank's operations lose their partners. If they do not within
  // abort_seconds, or after a failure, the connection is aborted: this rank has waited for its own operations, or the
  // job is being aborted. Captured work with its operations must have been destroyed before; after a failure it may
  // still exist.
  ~NcclCommunicator() override;

  int rank() const override;
  int size() const override;
  void all_reduce(Stream& stream, std::span<float> values, std::string_view label) override;
  void all_reduce(Stream& stream, std::span<double> values, std::string_view label) override;
  // NCCL rounds each partial sum to 16 bits.
  void all_reduce(Stream& stream, HalfSpan values, std::string_view label) override;
  void broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) override;
  double wait(Stream& stream) override;  // returns 0, because the host does not wait
  CommStatistics statistics() const override { return statistics_; }
  void check() override;
  bool stream_ordered() const override { return true; }
  void enqueue_captured(const std::function<void()>& launch) override;
  void reconnect() override;

  // Returns how many connections of this process were abandoned because NCCL did not end them in time. A thread may
  // still be inside NCCL, so the process must end without running the destructors of libraries.
  static int left_behind() noexcept;

 private:
  class Connection;
  class Monitor;
  void connect();
  template <class Enqueue>
  void enqueue(Stream& stream, std::string_view label, size_t bytes, const Enqueue& operation);

  ProcessGroup& group_;
  const std::shared_ptr<NcclLibrary> library_;
  const NcclOptions options_;
  const std::unique_ptr<Stream> reduction_;
  const std::unique_ptr<Event> ready_, done_;
  std::unique_ptr<Connection> connection_;
  std::unique_ptr<Monitor> monitor_;
  CommStatistics statistics_;
};

}  // namespace lockstep
