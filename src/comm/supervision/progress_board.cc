#include "lockstep/comm/supervision/progress_board.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "lockstep/base/activity.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/group/rank_names.h"

namespace lockstep {
namespace {

constexpr size_t kEventsKept = 64, kStepsKept = 16;
constexpr int kRanksDescribed = 3;
// Several heartbeats. A rank that is silent for longer does not count as alive.
double silent_seconds(size_t ranks) {
  constexpr size_t kManyRanks = 128;  // whose heartbeats go to a few peers at a time
  return ranks <= kManyRanks ? 3 : 12;
}

template <size_t N>
void set_text(std::array<char, N>& to, std::string_view text) {
  to.fill('\0');
  std::copy_n(text.data(), std::min(text.size(), N - 1), to.data());
}

size_t index_of(CollectiveKind kind) { return static_cast<size_t>(kind); }

}  // namespace

const char* run_phase_name(RunPhase phase) {
  switch (phase) {
    case RunPhase::mpi:
      return "start of MPI";
    case RunPhase::config:
      return "configuration";
    case RunPhase::start:
      return "start";
    case RunPhase::scan:
      return "scan of the data";
    case RunPhase::compile:
      return "compilation";
    case RunPhase::first_step:
      return "first step";
    case RunPhase::train:
      return "training";
    case RunPhase::evaluate:
      return "evaluation";
    case RunPhase::save:
      return "last save";
  }
  return "?";
}

ProgressBoard::ProgressBoard() : ranks_(1), last_seen_(1, monotonic_seconds()), last_progress_(monotonic_seconds()) {}

void ProgressBoard::set_rank(int rank, int size) {
  std::lock_guard lock(mutex_);
  const RankPosition mine = ranks_[rank_];
  ranks_.assign(static_cast<size_t>(size), {});
  last_seen_.assign(static_cast<size_t>(size), monotonic_seconds());
  ranks_[rank] = mine;
  rank_ = rank;
}

void ProgressBoard::set_hosts(std::vector<std::string> hosts) {
  std::lock_guard lock(mutex_);
  hosts_ = std::move(hosts);
}

void ProgressBoard::progress(RunPhase phase, int64_t step) {
  std::lock_guard lock(mutex_);
  RankPosition& mine = ranks_[rank_];
  if (mine.phase != phase) {
    note_locked(fmt::format("{}, step {}", run_phase_name(phase), step));
    steps_.clear();
  }
  mine.phase = phase;
  mine.step = step;
  phase_now_ = phase;
  step_now_ = step;
  last_progress_ = monotonic_seconds();
  if (steps_.size() == kStepsKept) steps_.pop_front();
  steps_.push_back({last_progress_, step});
}

void ProgressBoard::note(std::string_view event) {
  std::lock_guard lock(mutex_);
  note_locked(event);
}

void ProgressBoard::note_locked(std::string_view event) {
  if (events_.size() == kEventsKept) events_.pop_front();
  events_.push_back({monotonic_seconds(), std::string(event)});
}

int64_t ProgressBoard::begin(CollectiveKind kind, std::string_view label) {
  std::lock_guard lock(mutex_);
  RankPosition& mine = ranks_[rank_];
  set_text(mine.label, label);
  return ++mine.started[index_of(kind)];
}

void ProgressBoard::wait_begins(CollectiveKind kind, int64_t number, std::string_view label) {
  std::lock_guard lock(mutex_);
  RankPosition& mine = ranks_[rank_];
  mine.waiting = true;
  set_text(mine.label, label);
  waiting_for_ = kind;
  waiting_number_ = number;
  waiting_label_ = label;
}

void ProgressBoard::wait_ends() {
  std::lock_guard lock(mutex_);
  ranks_[rank_].waiting = false;
}

void ProgressBoard::set_files_in_use(std::string_view path) {
  std::lock_guard lock(mutex_);
  files_in_use_ = path;
}

void ProgressBoard::discount(double seconds) {
  std::lock_guard lock(mutex_);
  const double now = monotonic_seconds();
  last_progress_ = std::min(now, last_progress_ + seconds);
  for (double& seen : last_seen_) seen = std::min(now, seen + seconds);
  note_locked(fmt::format("this process was suspended for {:.0f} s", seconds));
}

RankPosition ProgressBoard::own() const {
  std::lock_guard lock(mutex_);
  RankPosition mine = ranks_[rank_];
  mine.quiet_seconds = static_cast<float>(monotonic_seconds() - last_progress_);
  return mine;
}

std::vector<RankPosition> ProgressBoard::snapshot(bool last) {
  std::lock_guard lock(mutex_);
  RankPosition& mine = ranks_[rank_];
  ++mine.heartbeat;
  mine.finished = last;
  mine.quiet_seconds = static_cast<float>(monotonic_seconds() - last_progress_);
  last_seen_[rank_] = monotonic_seconds();
  return ranks_;
}

void ProgressBoard::merge(const std::vector<RankPosition>& positions) {
  std::lock_guard lock(mutex_);
  const double now = monotonic_seconds();
  for (size_t r = 0; r < std::min(positions.size(), ranks_.size()); ++r) {
    if (positions[r].heartbeat <= ranks_[r].heartbeat || r == static_cast<size_t>(rank_)) continue;
    ranks_[r] = positions[r];
    last_seen_[r] = now;
  }
}

std::string ProgressBoard::name(int rank) const {
  if (hosts_.empty()) return fmt::format("rank {}", rank);
  return fmt::format("rank {}@{}", rank, hosts_[rank]);
}

// Returns "in phase training, step 119", with what the rank does there and for how long.
std::string ProgressBoard::describe(int rank, double now) const {
  const RankPosition& p = ranks_[rank];
  const double silent = now - last_seen_[rank];
  if (p.heartbeat == 0) return fmt::format("no heartbeat for {:.0f} s", silent);
  const std::string where = fmt::format("in phase {}, step {}", run_phase_name(p.phase), p.step);
  if (p.finished) return "at the end of the job";
  if (silent > silent_seconds(ranks_.size())) return fmt::format("last heard {:.0f} s ago {}", silent, where);
  const double quiet = static_cast<double>(p.quiet_seconds) + silent;
  if (p.waiting) return fmt::format("{}, waits for '{}'", where, p.label.data());
  return fmt::format("{}, alive, no progress for {:.0f} s", where, quiet);
}

bool ProgressBoard::is_missing(int rank) const {
  return rank != rank_ && ranks_[rank].started[index_of(waiting_for_)] < waiting_number_;
}

std::string ProgressBoard::position() const {
  const RankPosition mine = own();
  return fmt::format("{}, step {}", run_phase_name(mine.phase), mine.step);
}

void ProgressBoard::write_position(std::span<char> text) const noexcept {
  char* to = text.data();
  char* const end = to + text.size() - 1;
  for (const std::string_view part : {std::string_view(run_phase_name(phase_now_)), std::string_view(", step ")}) {
    to = std::copy_n(part.data(), std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(part.size()), end - to), to);
  }
  *std::to_chars(to, end, step_now_.load()).ptr = '\0';
}

std::string ProgressBoard::describe_wait() const {
  std::lock_guard lock(mutex_);
  if (ranks_[rank_].waiting) return fmt::format("'{}': {}", waiting_label_, missing_ranks_locked());
  return files_in_use_.empty() ? std::string() : fmt::format("the files in '{}'", files_in_use_);
}

std::string ProgressBoard::describe_missing() const {
  std::lock_guard lock(mutex_);
  return missing_ranks_locked();
}

std::string ProgressBoard::missing_ranks_locked() const {
  const double now = monotonic_seconds();
  std::string text;
  std::vector<int> others;  // that have not arrived either
  for (int r = 0, described = 0; r < static_cast<int>(ranks_.size()); ++r) {
    if (!is_missing(r)) continue;
    if (described < kRanksDescribed) {
      text += fmt::format("{}{} has not arrived ({})", described > 0 ? ", " : "", name(r), describe(r, now));
      ++described;
    } else {
      others.push_back(r);
    }
  }
  if (!others.empty())
    text += hosts_.empty() ? fmt::format(" and {} more", others.size())
                           : fmt::format(", nor have {}", fold_ranks(others, hosts_));
  if (!text.empty()) return text + silent_hosts_locked(now);
  for (int r = 0; r < static_cast<int>(ranks_.size()); ++r) {
    if (r == rank_ || now - last_seen_[r] <= silent_seconds(ranks_.size())) continue;
    return fmt::format("all have arrived, but {} is silent ({}){}", name(r), describe(r, now),
                       silent_hosts_locked(now));
  }
  return "all have arrived, and yet it does not end: look at the network";
}

// Returns "; nothing is heard from node8: look at the network between node7 and node8" if all ranks of another host are
// silent.
std::string ProgressBoard::silent_hosts_locked(double now) const {
  std::map<std::string_view, bool> hosts;  // whether all ranks are silent
  for (size_t r = 0; r < hosts_.size(); ++r) {
    const bool silent = r != static_cast<size_t>(rank_) && now - last_seen_[r] > silent_seconds(ranks_.size());
    bool& all = hosts.try_emplace(hosts_[r], true).first->second;
    all = all && silent;
  }
  std::vector<std::string> silent_hosts;
  for (const auto& [host, all] : hosts) {
    if (all) silent_hosts.emplace_back(host);
  }
  if (silent_hosts.empty()) return {};
  const std::string silent = fold_hosts(silent_hosts);
  return fmt::format("; nothing is heard from {0}: look at the network between {1} and {0}", silent, hosts_[rank_]);
}

bool ProgressBoard::alive_locked(int rank, double now) const {
  const auto r = static_cast<size_t>(rank);
  return ranks_[r].heartbeat > 0 && now - last_seen_[r] <= silent_seconds(ranks_.size());
}

// Returns whether the rank is alive, does not wait, and makes no progress.
bool ProgressBoard::hangs_locked(int rank, double now, double quiet_seconds) const {
  const double quiet = static_cast<double>(ranks_[rank].quiet_seconds) + now - last_seen_[rank];
  return alive_locked(rank, now) && !ranks_[rank].waiting && quiet >= quiet_seconds;
}

bool ProgressBoard::is_reporter(double quiet_seconds) const {
  std::lock_guard lock(mutex_);
  const double now = monotonic_seconds();
  for (int r = 0; r < rank_; ++r) {
    const bool reports =
        ranks_[rank_].waiting ? alive_locked(r, now) && ranks_[r].waiting : hangs_locked(r, now, quiet_seconds);
    if (reports) return false;
  }
  return true;
}

std::string ProgressBoard::others_without_progress(double quiet_seconds) const {
  std::lock_guard lock(mutex_);
  const double now = monotonic_seconds();
  std::vector<int> others;
  for (int r = 0; r < static_cast<int>(hosts_.size()); ++r) {
    if (r != rank_ && hangs_locked(r, now, quiet_seconds)) others.push_back(r);
  }
  if (others.empty() || ranks_[rank_].waiting) return {};
  return fmt::format("; no progress either on {}", fold_ranks(others, hosts_));
}

int ProgressBoard::alive_below() const {
  std::lock_guard lock(mutex_);
  const double now = monotonic_seconds();
  int alive = 0;
  for (int r = 0; r < rank_; ++r) alive += alive_locked(r, now);
  return alive;
}

std::string ProgressBoard::report() const {
  const std::string wait = describe_wait();
  std::lock_guard lock(mutex_);
  const double now = monotonic_seconds();
  std::string text = fmt::format("{}, process {}, at {}\n", name(rank_), ::getpid(), iso8601_utc_now());
  const RankPosition& mine = ranks_[rank_];
  text += fmt::format("phase {}, step {}, no progress for {:.1f} s\n", run_phase_name(mine.phase), mine.step,
                      now - last_progress_);
  if (!wait.empty()) text += fmt::format("waits for {}\n", wait);
  text += fmt::format("\n{:<28} {:>8} {:>10} {:>10} {:>8} {:>8}  {}\n", "rank", "heard", "reductions", "exchanges",
                      "step", "quiet", "phase and operation");
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const RankPosition& p = ranks_[r];
    const bool own = r == static_cast<size_t>(rank_);
    text += fmt::format("{:<28} {:>6.1f} s {:>10} {:>10} {:>8} {:>6.1f} s  {}: {}{}\n", name(static_cast<int>(r)),
                        own ? 0 : now - last_seen_[r], p.started[0], p.started[1], p.step,
                        own ? now - last_progress_ : static_cast<double>(p.quiet_seconds),
                        p.heartbeat == 0 && !own ? "no heartbeat yet" : run_phase_name(p.phase),
                        p.waiting ? "waits for " : "", p.label.data());
  }
  text += "\nphases and events of this rank, seconds ago:\n";
  for (const Event& event : events_) text += fmt::format("{:>10.3f}  {}\n", now - event.at, event.text);
  if (const auto activities = describe_activities(); !activities.empty()) {
    text += "\nwhat the threads of this rank are busy with:\n";
    for (const std::string& line : activities) text += fmt::format("  {}\n", line);
  }
  text += "\nlast steps of this phase, seconds ago:\n";
  for (const Step& step : steps_) text += fmt::format("{:>10.3f}  step {}\n", now - step.at, step.step);
  return text;
}

}  // namespace lockstep
