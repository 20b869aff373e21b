// Asynchronous collectives on the ranks' arenas, in stream order: all-reduce (sum) and broadcast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/backend/backend.h"

namespace lockstep {

// One finished operation. Times are in seconds of monotonic_seconds().
struct CommRecord {
  std::string label;
  int64_t bytes = 0;
  double queued = 0;   // the step called the communicator
  double started = 0;  // the transport started the operation
  double finished = 0;
};

// Called after each operation, possibly on a thread of the communicator. It must return quickly.
using CommObserver = std::function<void(const CommRecord&)>;

// Totals since the communicator was created.
struct CommStatistics {
  int64_t operations = 0;
  int64_t bytes = 0;
  double active_seconds = 0;   // time with at least one operation in progress
  double exposed_seconds = 0;  // time spent waiting in wait(), which computation did not hide
  // By rank: the time during which this rank's messages were the only ones missing. Empty if the transport does not
  // measure it.
  std::vector<double> straggler_wait_seconds;
};

// 16-bit floats: gradients as they are sent (comm.gradient_dtype).
struct HalfSpan {
  std::span<uint16_t> values;
  DType type = DType::bf16;  // or f16
};

// Every rank of the job makes the same calls in the same order with equal lengths. A call returns immediately; its
// operation starts after all work that is already on the stream. The memory must not be accessed until wait().
// Operations may finish in any order. Labels ("step 12 bucket 3") appear in messages and traces.
//
// Owned by main. Only the thread that runs the step may call it. It must be destroyed before the streams, the backend
// and the process group that it uses. An error of an operation is thrown by the next call, at the latest by wait();
// after that the communicator is unusable and the job must be aborted.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Replaces each element by its sum over all ranks, in place. The result has the same bits on every rank.
  virtual void all_reduce(Stream& stream, std::span<float> values, std::string_view label) = 0;
  virtual void all_reduce(Stream& stream, std::span<double> values, std::string_view label) = 0;
  // Where the transport supports it, the terms are added in float32 and only the sum is rounded.
  virtual void all_reduce(Stream& stream, HalfSpan values, std::string_view label) = 0;
  // Sums float32 values that travel between hosts as 16-bit floats of `wire`: the sum of each host is rounded once, and
  // so is the total. Values for which rounds_between_hosts() is false (the same on every rank) travel as they are.
  virtual void all_reduce_rounded(Stream& stream, std::span<float> values, DType /*wire*/, std::string_view label) {
    all_reduce(stream, values, label);
  }
  virtual bool rounds_between_hosts(std::span<const float> /*values*/) const { return false; }
  // A blocking all_reduce() for small sums in the middle of a step. It is started before operations that are still
  // queued, and work that is enqueued on the stream afterwards sees the result. Returns the seconds for which
  // computation had to wait. Throws as wait() does.
  virtual double all_reduce_now(Stream& stream, std::span<float> values, std::string_view label) {
    all_reduce(stream, values, label);
    return wait(stream);
  }
  // Copies root's bytes to all ranks, in place.
  virtual void broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) = 0;

  // Collective: all ranks request the same number of bytes. Returns zeroed host memory in which all_reduce() needs no
  // copy, for values that are reduced every step; empty if the transport has no such memory. The buffer must not be
  // used after the communicator has been destroyed.
  virtual Buffer shared_buffer(size_t /*bytes*/) { return {}; }
  // Returns how gradients are summed and why, for the log; empty if there is nothing to say.
  virtual std::string plan() const { return {}; }

  // Waits for all operations so far: work that is enqueued on the stream afterwards sees their results. Returns the
  // seconds for which computation had to wait. Throws Error(stalled), which names the oldest unfinished operation,
  // after the time limit.
  virtual double wait(Stream& stream) = 0;

  // Throws if an enqueued operation has failed and the host has not noticed yet. Call it before reading values that a
  // device has computed from results of operations.
  virtual void check() {}

  virtual CommStatistics statistics() const = 0;

  // Returns whether operations are only enqueued and never block the host, so that a stream capture (CUDA graph) may
  // contain them.
  virtual bool stream_ordered() const { return false; }
  // Calls `launch`, which enqueues such captured work. Throws if the communicator has failed.
  virtual void enqueue_captured(const std::function<void()>& launch) { launch(); }
  // Collective, for a communicator that has failed on some rank while operations were captured: replaces its connection
  // on all ranks. No operation may be in flight, and no captured work may exist. Throws if the ranks cannot connect.
  virtual void reconnect() {}
};

}  // namespace lockstep
