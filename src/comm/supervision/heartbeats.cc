#include "lockstep/comm/supervision/heartbeats.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/group/mpi_support.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/thread_name.h"
#include "lockstep/comm/group/mpi_session.h"

namespace lockstep {
namespace {

constexpr int kTag = 1;
constexpr std::chrono::milliseconds kShutdownPollInterval{2};

// The messages to or from one peer.
struct Channel {
  int rank = 0;
  std::vector<RankPosition> message;
  MPI_Request request = MPI_REQUEST_NULL;
  bool closed = false;  // the last message has been sent or received
};

// The channels to (direction 1) or from (direction -1) the peers at distance 1, 2, 4, ...
std::vector<Channel> make_channels(int rank, int size, int direction) {
  std::vector<Channel> channels;
  for (int distance = 1; distance < size; distance *= 2) {
    channels.push_back({.rank = (rank + direction * distance + size) % size,
                        .message = std::vector<RankPosition>(static_cast<size_t>(size))});
  }
  return channels;
}

}  // namespace

// The heartbeat thread and its state.
class Heartbeats::Worker {
 public:
  Worker(CommHandle comm, ProgressBoard& board, const HeartbeatOptions& options)
      : comm_(std::move(comm)), board_(board), options_(options) {
    int rank = 0, size = 1;
    check_mpi(MPI_Comm_rank(comm_.get(), &rank), "rank");
    check_mpi(MPI_Comm_size(comm_.get(), &size), "number of ranks");
    to_ = make_channels(rank, size, 1);
    from_ = make_channels(rank, size, -1);
    for (Channel& channel : from_) receive(channel);
    thread_ = std::thread([this] { run(); });
  }

  // Stops the thread. Returns false if messages are still in flight: MPI may then access this object until the process
  // ends, so it must be leaked.
  bool stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
    if (!all_closed_) (void)comm_.release();
    return all_closed_;
  }

 private:
  int bytes() const { return static_cast<int>(from_[0].message.size() * sizeof(RankPosition)); }

  void receive(Channel& channel) {
    check_mpi(MPI_Irecv(channel.message.data(), bytes(), MPI_BYTE, channel.rank, kTag, comm_.get(), &channel.request),
              "heartbeat");
  }

  // Sends a heartbeat to the peers whose turn it is and whose previous one has been delivered. `last` marks it as this
  // rank's last one, which goes to all; the call then returns true once every peer has been sent to.
  bool send(bool last) {
    const std::vector<RankPosition> positions = board_.snapshot(last);
    const size_t peers = to_.size();
    const size_t turns = last ? peers : std::clamp<size_t>(options_.bytes_per_turn / bytes(), 1, peers);
    const size_t first = std::exchange(next_peer_, (next_peer_ + turns) % peers);
    bool all = true;
    for (size_t i = 0; i < turns; ++i) {
      Channel& channel = to_[(first + i) % peers];
      if (channel.closed) continue;
      int done = 0;
      check_mpi(MPI_Test(&channel.request, &done, MPI_STATUS_IGNORE), "heartbeat");
      all = all && done;
      if (!done) continue;
      channel.message = positions;
      channel.closed = last;
      check_mpi(MPI_Isend(channel.message.data(), bytes(), MPI_BYTE, channel.rank, kTag, comm_.get(), &channel.request),
                "heartbeat");
    }
    return all;
  }

  // Merges all heartbeats that have arrived into the board.
  void receive_arrived() {
    for (Channel& channel : from_) {
      while (!channel.closed) {
        int done = 0;
        check_mpi(MPI_Test(&channel.request, &done, MPI_STATUS_IGNORE), "heartbeat");
        if (!done) break;
        board_.merge(channel.message);
        channel.closed = channel.message[channel.rank].finished;
        if (!channel.closed) receive(channel);
      }
    }
  }

  // Exchanges the last heartbeats, which are marked as such, so that no message is in flight afterwards. Returns false
  // on timeout.
  bool close_all() {
    Deadline deadline(options_.shutdown_seconds);
    bool sent = false;
    while (true) {
      sent = sent || send(true);
      receive_arrived();
      const bool received = std::ranges::all_of(from_, [](const Channel& channel) { return channel.closed; });
      if (sent && received && all_delivered()) return true;
      if (deadline.passed()) return false;
      std::this_thread::sleep_for(kShutdownPollInterval);
    }
  }

  bool all_delivered() {
    return std::ranges::all_of(to_, [](Channel& channel) {
      int done = 0;
      check_mpi(MPI_Test(&channel.request, &done, MPI_STATUS_IGNORE), "heartbeat");
      return done != 0;
    });
  }

  // A failure of heartbeats does not end the run, because only the wording of messages depends on them.
  void run() noexcept {
    try {
      name_thread("heartbeats");
      exchange_until_stopped();
      all_closed_ = close_all();
    } catch (const std::exception& error) {
      log_warning("no more heartbeats from this rank: {}", error.what());
    }
  }

  void exchange_until_stopped() {
    const auto interval = std::chrono::duration<double>(options_.interval_seconds);
    std::unique_lock lock(mutex_);
    while (!stop_) {
      lock.unlock();
      send(false);
      receive_arrived();
      lock.lock();
      changed_.wait_for(lock, interval, [&] { return stop_; });
    }
  }

  CommHandle comm_;
  ProgressBoard& board_;
  const HeartbeatOptions options_;
  std::vector<Channel> to_, from_;  // only the thread uses them once it runs
  size_t next_peer_ = 0;            // in to_
  bool all_closed_ = false;         // set by the thread; read after it has ended

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
  worker_ = std::make_unique<Worker>(duplicate(MPI_COMM_WORLD, options.contact_seconds, "first contact of the ranks"),
                                     board, options);
}

Heartbeats::~Heartbeats() {
  if (worker_ && !worker_->stop()) (void)worker_.release();
}

}  // namespace lockstep
