// The ranks of the job as host code sees them: who they are, and small blocking exchanges between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep {

class MpiSession;
class ProgressBoard;
struct ProcessGroupState;  // the MPI side; src/comm only

// What a call waits for, as messages shall name it ("the first step"), and how long. 0: the group's own limit.
struct Timeout {
  std::string_view what;
  double seconds = 0;
};

struct ProcessGroupOptions {
  double wait_seconds = 600;       // limit of every call that names none
  ProgressBoard* board = nullptr;  // told of every exchange, asked who is behind; must outlive the group
};

// All ranks of the job, on a communicator of their own. Owned by main; needs its MpiSession to live longer, and must
// itself outlive what is built on it. One thread at a time; other communicators may work meanwhile on theirs.
//
// Every call but the plain getters is collective: all ranks make the same calls in the same order. Each begins with a
// roll call at rank 0, so a call that cannot succeed ends on every rank that made it, naming the others:
//   Error(stalled)   some ranks did not arrive within the limit (the message lists them with their hosts)
//   Error(internal)  ranks are in different calls, or MPI reports an error
// After such an error the group is broken and refuses further calls: the job must be aborted.
class ProcessGroup {
 public:
  explicit ProcessGroup(const MpiSession& session, ProcessGroupOptions options = {});
  // This rank by itself, under its name in `job`: for work that waits for nobody. Its calls return at once.
  static ProcessGroup self(const ProcessGroup& job);
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const;
  int size() const;
  bool is_root() const { return rank() == 0; }
  int local_rank() const;  // among the ranks that share this one's memory
  int local_size() const;
  const std::string& host() const { return host(rank()); }
  const std::string& host(int rank) const;
  std::string describe(int rank) const;  // "rank 3@node7"

  void barrier(const Timeout& wait);

  // Rank 0's contents to all. The span has the same length on every rank.
  void broadcast(std::span<std::byte> bytes, const Timeout& wait);
  std::string broadcast(std::string text, const Timeout& wait);
  template <class T>
  requires std::is_trivially_copyable_v<T> std::vector<T> broadcast(std::vector<T> values, const Timeout& wait);

  // In place, element by element, over all ranks. max() of doubles ignores NaN (as MPI_MAX does): reduce a flag where
  // that matters.
  void all_reduce_sum(std::span<int64_t> values, const Timeout& wait);
  void all_reduce_sum(std::span<double> values, const Timeout& wait);
  void all_reduce_max(std::span<int64_t> values, const Timeout& wait);
  void all_reduce_max(std::span<double> values, const Timeout& wait);

  // What every rank gave, by rank. The vectors have the same length on every rank; all are concatenated.
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
