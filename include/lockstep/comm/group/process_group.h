// The ranks of the job as seen by host code: their identity, and small blocking collectives between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lockstep/comm/supervision/progress_board.h"

namespace lockstep {

class MpiSession;
struct ProcessGroupState;  // holds the MPI objects; defined in src/comm

// The time limit of a collective call, and what it waits for ("the first step"), for messages. 0 seconds selects the
// group's limit.
struct Timeout {
  std::string_view what;
  double seconds = 0;
};

using WaitLimits = std::array<double, kRunPhases>;

struct ProcessGroupOptions {
  double wait_seconds = 600;       // limit in all phases until set_limits()
  ProgressBoard* board = nullptr;  // records every exchange and names the missing ranks; must outlive the group
};

// All ranks of the job, on an MPI communicator of its own. Owned by main. The MpiSession must outlive it, and it must
// outlive everything that is built on it. Only one thread may use it at a time; other communicators may run
// concurrently on theirs.
//
// All calls except the getters are collective: every rank makes the same calls in the same order. Each call starts with
// a roll call, so a call that cannot succeed throws on every rank that made it, and names the other ranks:
//   Error(stalled)   some ranks did not arrive within the limit (with a progress board, the message names them)
//   Error(internal)  ranks are in different calls, or MPI reports an error
// After such an error the group is broken and refuses further calls; the job must be aborted.
class ProcessGroup {
 public:
  explicit ProcessGroup(const MpiSession& session, ProcessGroupOptions options = {});
  // A group of this rank alone (as MPI_COMM_SELF), with its host name from `job`, for work that must not wait for other
  // ranks. Its collective calls return immediately.
  static ProcessGroup self(const ProcessGroup& job);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const;
  int size() const;
  bool is_root() const { return rank() == 0; }
  int local_rank() const;  // index among the ranks that share memory with this one (MPI_COMM_TYPE_SHARED)
  int local_size() const;  // number of those ranks
  // By rank: the lowest rank that shares memory with it, which identifies its host.
  const std::vector<int64_t>& first_on_host() const;
  const std::string& host() const { return host(rank()); }
  const std::string& host(int rank) const;
  const std::vector<std::string>& hosts() const;  // by rank
  std::string describe(int rank) const;           // "rank 3@node7"

  // Sets the limits of waits, in seconds, by RunPhase. They hold for calls whose Timeout has no limit of its own.
  void set_limits(const WaitLimits& seconds);
  double limit(RunPhase phase) const;
  // Returns the limit of the phase in which the board sees this rank; without a board, that of training.
  double limit() const;

  void barrier(const Timeout& wait);

  // Copies rank 0's contents to all ranks. The span has the same length on every rank; text and vectors take rank 0's
  // length.
  void broadcast(std::span<std::byte> bytes, const Timeout& wait);
  std::string broadcast(std::string text, const Timeout& wait);
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> broadcast(std::vector<T> values, const Timeout& wait);

  // Reduces elementwise over all ranks, in place. The maximum of doubles ignores NaN, as MPI_MAX does; reduce a flag if
  // NaN matters.
  void all_reduce_sum(std::span<int64_t> values, const Timeout& wait);
  void all_reduce_sum(std::span<double> values, const Timeout& wait);
  void all_reduce_max(std::span<int64_t> values, const Timeout& wait);
  void all_reduce_max(std::span<double> values, const Timeout& wait);

  // Returns every rank's contribution in rank order. Texts may differ in length. The values have the same count on
  // every rank and are concatenated: the result has shape [ranks, count].
  std::vector<std::string> all_gather(const std::string& text, const Timeout& wait);
  std::vector<int64_t> all_gather(std::span<const int64_t> values, const Timeout& wait);

  const ProcessGroupState& state() const { return *state_; }

 private:
  explicit ProcessGroup(std::unique_ptr<ProcessGroupState> state);

  std::unique_ptr<ProcessGroupState> state_;
};

template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> ProcessGroup::broadcast(std::vector<T> values,
                                                                                const Timeout& wait) {
  int64_t count = static_cast<int64_t>(values.size());
  broadcast(std::as_writable_bytes(std::span(&count, 1)), wait);
  values.resize(static_cast<size_t>(count));
  broadcast(std::as_writable_bytes(std::span(values)), wait);
  return values;
}

}  // namespace lockstep
