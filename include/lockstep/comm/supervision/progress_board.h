// What this rank is doing and what it has heard of the others: where every message about a rank that stands still takes
// its words from.
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

// What a rank is doing; each phase has limits of its own (watchdog.h).
enum class RunPhase : uint8_t { mpi, config, start, scan, compile, first_step, train, evaluate, save };
inline constexpr int kRunPhases = 9;
const char* run_phase_name(RunPhase phase);

// What ranks do together, each counted from the start: the reductions of a Communicator, the exchanges of a
// ProcessGroup. All ranks make them in one order, so a count says who has arrived where.
enum class CollectiveKind : uint8_t { reduction, exchange };
inline constexpr int kCollectiveKinds = 2;

// Where one rank is. Travels between ranks as bytes.
struct RankPosition {
  int64_t beat = 0;  // grows with every heartbeat; 0: never heard of
  int64_t step = 0;
  std::array<int64_t, kCollectiveKinds> begun{};
  float quiet_seconds = 0;  // since it last made progress
  RunPhase phase = RunPhase::mpi;
  bool waiting = false;       // for other ranks
  bool left = false;          // has come to the agreed end
  std::array<char, 49> at{};  // what it waits for, or its last reduction
};
static_assert(std::is_trivially_copyable_v<RankPosition> && sizeof(RankPosition) == 88);

// Owned by the Watchdog; used from any thread of the rank. Holds no thread and knows no MPI.
class ProgressBoard {
 public:
  ProgressBoard();

  // Once MPI has started; hosts by rank, as soon as they are known.
  void set_rank(int rank, int size);
  void set_hosts(std::vector<std::string> hosts);

  // This rank moves on.
  void progress(RunPhase phase, int64_t step);
  // Keeps a line among the last events, for the report.
  void note(std::string_view event);
  // This rank begins the next reduction or exchange; returns its number, from 1.
  int64_t begin(CollectiveKind what, std::string_view label);
  // This rank waits until number `number` of them is done, or has stopped waiting.
  void wait_begins(CollectiveKind what, int64_t number, std::string_view label);
  void wait_ends();
  // This rank calls into the file system of `path`, which may not answer; empty: it has returned.
  void set_files_in_use(std::string_view path);
  // Time that does not count: the whole process stood still.
  void discount(double seconds);

  RankPosition own() const;
  // For heartbeats: everything known, this rank's own position with its next beat; and what another rank knows.
  std::vector<RankPosition> snapshot(bool leaving);
  void merge(const std::vector<RankPosition>& news);

  // "training, step 119"; the second is for a signal handler.
  std::string position() const;
  void write_position(std::span<char> text) const noexcept;
  // While this rank waits: what for, and describe_missing(); while it uses files: which. Empty otherwise.
  std::string describe_wait() const;
  // Which ranks have not arrived where this one waits, with where they were last; or what else may be wrong.
  std::string describe_missing() const;
  // Of all ranks that wait and were heard of lately, the lowest speaks for them. True when this rank is it, or is not
  // waiting at all.
  bool is_reporter() const;
  // Ranks below this one that were heard of lately.
  int alive_below() const;
  // All of the above for a file: this rank, a table of all ranks, the last events.
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
  std::string name(int rank) const;
  std::string describe(int rank, double now) const;
  bool is_missing(int rank) const;
  std::string missing_ranks_locked() const;

  mutable std::mutex mutex_;
  int rank_ = 0;
  std::vector<RankPosition> ranks_;  // the own one too
  std::vector<double> heard_;        // when, by rank
  std::vector<std::string> hosts_;
  double since_;  // last progress
  CollectiveKind waiting_for_ = CollectiveKind::reduction;
  int64_t waiting_number_ = 0;
  std::string waiting_label_;
  std::string files_in_use_;
  std::deque<Event> events_;                        // phases and notes
  std::deque<Step> steps_;                          // of the phase
  std::atomic<RunPhase> phase_now_{RunPhase::mpi};  // the own position once more, readable without the lock
  std::atomic<int64_t> step_now_{0};
};

// Says on the board that this rank waits, while it lives. Without a board it does nothing.
class ScopedWait {
 public:
  struct What {
    CollectiveKind what;
    int64_t number;
    std::string_view label;
  };
  ScopedWait(ProgressBoard* board, const What& what) : board_(board) {
    if (board_) board_->wait_begins(what.what, what.number, what.label);
  }
  ~ScopedWait() {
    if (board_) board_->wait_ends();
  }
  ScopedWait(const ScopedWait&) = delete;
  ScopedWait& operator=(const ScopedWait&) = delete;

 private:
  ProgressBoard* board_;
};

// Says on the board that this rank uses the files of `path`, while it lives. Without a board it does nothing.
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
