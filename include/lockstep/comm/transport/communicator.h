// The device side of communication: asynchronous sums and broadcasts of the ranks' arenas, in stream order.
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

// One finished operation. Times are monotonic_seconds().
struct CommRecord {
  std::string label;
  int64_t bytes = 0;
  double queued = 0;   // handed over by the step
  double started = 0;  // given to the transport
  double finished = 0;
};

// Called after each operation, possibly on a thread of the communicator: for traces and watchdogs. Must be quick.
using CommObserver = std::function<void(const CommRecord&)>;

// Totals since the communicator was made.
struct CommStatistics {
  int64_t operations = 0;
  int64_t bytes = 0;
  double active_seconds = 0;   // at least one operation in progress
  double exposed_seconds = 0;  // wait() waiting: the part that computing did not hide
  // By rank: for how long a sum had nothing to wait for but this rank's messages. Empty: the transport does not say.
  std::vector<double> straggler_wait_seconds;
};

// Numbers of 16 bits: gradients on the wire.
struct HalfSpan {
  std::span<uint16_t> values;
  DType type = DType::bf16;  // or f16
};

// Every rank of the job makes the same calls in the same order, with equal lengths. An operation starts after all work
// that is on the stream already and returns at once; the memory must be left alone until wait(). Operations may finish
// in any order. Labels ("step 12 bucket 3") appear in messages and traces.
//
// Owned by main; used by the thread that runs the step; destroyed before the streams, backend and process group it was
// used with. Whatever goes wrong later is thrown by the next call, at the latest by wait(); after that the
// communicator is unusable and the job must be aborted.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place: each element becomes its sum over all ranks, with the same bits on every rank.
  virtual void all_reduce(Stream& stream, std::span<float> values, std::string_view label) = 0;
  virtual void all_reduce(Stream& stream, std::span<double> values, std::string_view label) = 0;
  // Where the transport lets it, terms are added in float32 and the sum alone is rounded.
  virtual void all_reduce(Stream& stream, HalfSpan values, std::string_view label) = 0;
  // As all_reduce(), ahead of operations that wait to be started, and later work on the stream sees the result: for
  // small sums in the middle of a step. Returns the seconds for which computing had to wait; throws as wait() does.
  virtual double all_reduce_now(Stream& stream, std::span<float> values, std::string_view label) {
    all_reduce(stream, values, label);
    return wait(stream);
  }
  // In place: root's bytes to all.
  virtual void broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) = 0;

  // Zeroed memory of the host in which sums need no copy, for values that are summed again and again; empty where there
  // is no such memory. Must not be used after the communicator. Collective: all ranks ask for as many bytes.
  virtual Buffer shared_buffer(size_t /*bytes*/) { return {}; }

  // After it, work on the stream sees the results of all operations so far. Returns the seconds for which computing
  // had to wait. Throws Error(stalled) naming the oldest unfinished operation when the limit has passed.
  virtual double wait(Stream& stream) = 0;

  // Throws what has gone wrong with operations that are enqueued, which the host may not have met: before it trusts
  // what a device made of their results.
  virtual void check() {}

  virtual CommStatistics statistics() const = 0;

  // Whether operations are only enqueued and never hold up the host, so that work with them in it can be captured.
  virtual bool stream_ordered() const { return false; }
  // Calls `launch`, which enqueues such captured work; throws when operations are possible no more.
  virtual void enqueue_captured(const std::function<void()>& launch) { launch(); }
};

}  // namespace lockstep
