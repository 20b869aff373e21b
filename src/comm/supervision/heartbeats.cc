#include "lockstep/comm/supervision/heartbeats.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "comm/group/mpi_support.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/thread_name.h"
#include "lockstep/comm/group/mpi_session.h"

namespace lockstep {
namespace {

constexpr int kTag = 1;
constexpr std::chrono::milliseconds kFarewellPause{2};

// Messages to or from one rank.
struct Line {
  int rank = 0;
  std::vector<RankPosition> message;
  MPI_Request request = MPI_REQUEST_NULL;
  bool over = false;  // receiving: the last message has come
};

std::vector<Line> lines(int rank, int size, int direction) {
  std::vector<Line> found;
  for (int distance = 1; distance < size; distance *= 2) {
    found.push_back({.rank = (rank + direction * distance + size) % size,
                     .message = std::vector<RankPosition>(static_cast<size_t>(size))});
  }
  return found;
}

}  // namespace

// What the thread works with.
class Heartbeats::Pulse {
 public:
  Pulse(CommHandle comm, ProgressBoard& board, const HeartbeatOptions& options)
      : comm_(std::move(comm)), board_(board), options_(options) {
    int rank = 0, size = 1;
    check_mpi(MPI_Comm_rank(comm_.get(), &rank), "rank");
    check_mpi(MPI_Comm_size(comm_.get(), &size), "number of ranks");
    to_ = lines(rank, size, 1);
    from_ = lines(rank, size, -1);
    for (Line& line : from_) receive(line);
    thread_ = std::thread([this] { run(); });
  }

  // False: messages are still on their way, and MPI may touch this object until the process ends.
  bool stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
    if (!farewell_complete_) (void)comm_.release();
    return farewell_complete_;
  }

 private:
  int bytes() const { return static_cast<int>(from_[0].message.size() * sizeof(RankPosition)); }

  void receive(Line& line) {
    check_mpi(MPI_Irecv(line.message.data(), bytes(), MPI_BYTE, line.rank, kTag, comm_.get(), &line.request),
              "heartbeat");
  }

  // Sends to every rank whose message before has gone; with `leaving`, true when all have been sent to.
  bool send(bool leaving) {
    const std::vector<RankPosition> news = board_.snapshot(leaving);
    bool all = true;
    for (Line& line : to_) {
      if (line.over) continue;
      int done = 0;
      check_mpi(MPI_Test(&line.request, &done, MPI_STATUS_IGNORE), "heartbeat");
      all = all && done;
      if (!done) continue;
      line.message = news;
      line.over = leaving;
      check_mpi(MPI_Isend(line.message.data(), bytes(), MPI_BYTE, line.rank, kTag, comm_.get(), &line.request),
                "heartbeat");
    }
    return all;
  }

  void listen() {
    for (Line& line : from_) {
      while (!line.over) {
        int done = 0;
        check_mpi(MPI_Test(&line.request, &done, MPI_STATUS_IGNORE), "heartbeat");
        if (!done) break;
        board_.merge(line.message);
        line.over = line.message[static_cast<size_t>(line.rank)].left;
        if (!line.over) receive(line);
      }
    }
  }

  // The last message of each rank says so; after it nothing is on its way.
  bool say_farewell() {
    Deadline deadline(options_.farewell_seconds);
    bool sent = false;
    while (true) {
      sent = sent || send(true);
      listen();
      const bool heard = std::ranges::all_of(from_, [](const Line& line) { return line.over; });
      if (sent && heard && all_gone()) return true;
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(kFarewellPause);
    }
  }

  bool all_gone() {
    return std::ranges::all_of(to_, [](Line& line) {
      int done = 0;
      check_mpi(MPI_Test(&line.request, &done, MPI_STATUS_IGNORE), "heartbeat");
      return done != 0;
    });
  }

  // Trouble with heartbeats ends no run: what depends on them is the wording of messages.
  void run() noexcept {
    try {
      name_thread("heartbeats");
      beat_until_stopped();
      farewell_complete_ = say_farewell();
    } catch (const std::exception& error) {
      log_warning("no more heartbeats from this rank: {}", error.what());
    }
  }

  void beat_until_stopped() {
    const auto interval = std::chrono::duration<double>(options_.interval_seconds);
    std::unique_lock lock(mutex_);
    while (!stop_) {
      lock.unlock();
      send(false);
      listen();
      lock.lock();
      changed_.wait_for(lock, interval, [&] { return stop_; });
    }
  }

  CommHandle comm_;
  ProgressBoard& board_;
  const HeartbeatOptions options_;
  std::vector<Line> to_, from_;  // used by the thread alone once it runs
  bool farewell_complete_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

Heartbeats::Heartbeats(const MpiSession&, ProgressBoard& board, HeartbeatOptions options) {
  int rank = 0, size = 1;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "number of ranks");
  board.set_rank(rank, size);
  if (size == 1) return;
  pulse_ = std::make_unique<Pulse>(duplicate(MPI_COMM_WORLD, options.contact_seconds, "first contact of the ranks"),
                                   board, options);
}

Heartbeats::~Heartbeats() {
  if (pulse_ && !pulse_->stop()) (void)pulse_.release();
}

}  // namespace lockstep
