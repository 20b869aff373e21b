// The position of this rank and the last known positions of all others. Every message about a stalled rank is made from
// it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep {

// The activity of a rank. Each phase has its own time limits (watchdog.h).
enum class RunPhase : uint8_t { mpi, config, start, scan, compile, first_step, train, evaluate, save };
inline constexpr int kRunPhases = 9;
const char* run_phase_name(RunPhase phase);

// The two kinds of collective operations: the reductions of a Communicator and the exchanges of a ProcessGroup. Each
// kind is counted from the start of the job. All ranks make them in the same order, so the counts tell which ranks have
// arrived.
enum class CollectiveKind : uint8_t { reduction, exchange };
inline constexpr int kCollectiveKinds = 2;

// The position of one rank. It is sent between ranks as bytes.
struct RankPosition {
  int64_t heartbeat = 0;  // number of its last heartbeat; 0 if none has been received
  int64_t step = 0;
  std::array<int64_t, kCollectiveKinds> started{};  // collectives it has started, by CollectiveKind
  float quiet_seconds = 0;                          // time since its last progress
  RunPhase phase = RunPhase::mpi;
  bool waiting = false;          // it waits for other ranks
  bool finished = false;         // it has reached the agreed end of the job
  std::array<char, 49> label{};  // label of the operation that it waits for, or of the last one it started
};
static_assert(std::is_trivially_copyable_v<RankPosition> && sizeof(RankPosition) == 88);

// Owned by the Watchdog. All members may be called from any thread of the rank. It has no thread and makes no MPI
// calls.
class ProgressBoard {
 public:
  ProgressBoard();

  // Called once MPI has started, and once the hosts are known (indexed by rank).
  void set_rank(int rank, int size);
  void set_hosts(std::vector<std::string> hosts);

  // Records that this rank has made progress.
  void progress(RunPhase phase, int64_t step);
  // Adds a line to the last events, which the report contains.
  void note(std::string_view event);
  // Records that this rank starts its next reduction or exchange. Returns the number of it, counted from 1.
  int64_t begin(CollectiveKind kind, std::string_view label);
  // Records that this rank starts to wait until collective `number` of this kind is done, or that it has stopped
  // waiting.
  void wait_begins(CollectiveKind kind, int64_t number, std::string_view label);
  void wait_ends();
  // Records that this rank calls into the file system at `path`, which may hang; an empty path means that it has
  // returned.
  void set_files_in_use(std::string_view path);
  // Subtracts time during which the whole process was suspended.
  void discount(double seconds);

  RankPosition own() const;
  // For heartbeats: snapshot() counts a heartbeat of this rank and returns the positions of all ranks, indexed by rank;
  // `last` marks this rank as finished. merge() takes over the positions from another rank's snapshot that are newer
  // than the known ones.
  std::vector<RankPosition> snapshot(bool last);
  void merge(const std::vector<RankPosition>& positions);

  // Return and write "training, step 119". write_position() cuts the text to fit and is safe in a signal handler.
  std::string position() const;
  void write_position(std::span<char> text) const noexcept;
  // Returns what this rank waits for together with describe_missing(), or the files that it uses; empty if it does
  // neither.
  std::string describe_wait() const;
  // Names the ranks that have not arrived at the collective for which this rank waits, with their last known positions.
  // Names other hosts from which nothing is heard. If all have arrived, says what else may be wrong.
  std::string describe_missing() const;
  // Returns whether this rank should report a stall, so that a job prints few messages. Of all ranks that wait and are
  // alive, the lowest reports. So does, of those that do not wait and have made no progress for `quiet_seconds`, the
  // lowest.
  bool is_reporter(double quiet_seconds) const;
  // Names the other ranks of the second kind: "; no progress either on ranks 1-63 on node7". Empty if there are none,
  // or if this rank waits.
  std::string others_without_progress(double quiet_seconds) const;
  // Records whether an operation that all ranks share has failed: every rank then has an error, and one of them its
  // cause.
  void set_failed_with_others(bool failed) { failed_with_others_ = failed; }
  bool failed_with_others() const { return failed_with_others_; }
  // Returns the number of lower ranks from which a heartbeat has arrived within the last seconds.
  int alive_below() const;
  // Returns everything above as text for a file: this rank, a table of all ranks, and the last events.
  std::string report() const;

 private:
  struct Event {
    double at;
    std::string text;
  };
  struct Step {
    double at;
    int64_t step;
  };
  void note_locked(std::string_view event);
  bool alive_locked(int rank, double now) const;
  bool hangs_locked(int rank, double now, double quiet_seconds) const;
  std::string name(int rank) const;
  std::string describe(int rank, double now) const;
  bool is_missing(int rank) const;
  std::string missing_ranks_locked() const;
  std::string silent_hosts_locked(double now) const;

  mutable std::mutex mutex_;
  int rank_ = 0;
  std::vector<RankPosition> ranks_;  // by rank, including this one
  std::vector<double> last_seen_;    // by rank, when its last heartbeat arrived
  std::vector<std::string> hosts_;
  double last_progress_;  // of this rank
  CollectiveKind waiting_for_ = CollectiveKind::reduction;
  int64_t waiting_number_ = 0;
  std::string waiting_label_;
  std::string files_in_use_;
  std::deque<Event> events_;                        // phases and notes
  std::deque<Step> steps_;                          // of the current phase
  std::atomic<RunPhase> phase_now_{RunPhase::mpi};  // this rank's position again, for reading without the lock
  std::atomic<int64_t> step_now_{0};
  std::atomic<bool> failed_with_others_{false};
};

// Records on the board that this rank waits for a collective, for the lifetime of the object. Does nothing without a
// board.
class ScopedWait {
 public:
  struct What {
    CollectiveKind kind;
    int64_t number;
    std::string_view label;
  };
  ScopedWait(ProgressBoard* board, const What& what) : board_(board) {
    if (board_) board_->wait_begins(what.kind, what.number, what.label);
  }
  ~ScopedWait() {
    if (board_) board_->wait_ends();
  }
  ScopedWait(const ScopedWait&) = delete;
  ScopedWait& operator=(const ScopedWait&) = delete;

 private:
  ProgressBoard* board_;
};

// Records on the board that this rank uses the files at `path`, for the lifetime of the object. Does nothing without a
// board.
class ScopedFileUse {
 public:
  ScopedFileUse(ProgressBoard* board, std::string_view path) : board_(board) {
    if (board_) board_->set_files_in_use(path);
  }
  ~ScopedFileUse() {
    if (board_) board_->set_files_in_use({});
  }
  ScopedFileUse(const ScopedFileUse&) = delete;
  ScopedFileUse& operator=(const ScopedFileUse&) = delete;

 private:
  ProgressBoard* board_;
};

}  // namespace lockstep
