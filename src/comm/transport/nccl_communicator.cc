#include "lockstep/comm/transport/nccl_communicator.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <new>
#include <thread>

#include "comm/group/mpi_support.h"
#include "comm/group/process_group_state.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/plugin.h"
#include "lockstep/base/thread_name.h"
#include "lockstep/comm/group/process_group.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kPollInterval{50};

std::atomic<int> connections_left_behind{0};

std::vector<std::byte> broadcast_id(ProcessGroup& group, NcclLibrary& library) {
  return group.broadcast(group.is_root() ? library.make_id() : std::vector<std::byte>{}, {"NCCL's address"});
}

}  // namespace

// The link and its end. The link ends on a thread of its own, because NCCL may block there: an abort stops all
// operations immediately but then waits until no captured work refers to the connection, and such work is destroyed
// only after the failure has been reported.
class NcclCommunicator::Connection {
 public:
  Connection(std::unique_ptr<NcclLink> link, ProgressBoard* board, double abort_seconds)
      : state_(std::make_shared<State>(std::move(link))), board_(board), abort_seconds_(abort_seconds) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  // Finishes a link that was not aborted. Waits for the end of the link, with a time limit.
  ~Connection() {
    const double seconds = ending_ ? abort_seconds_ : 2 * abort_seconds_;  // finishing may turn into an abort
    if (!ending_) end([state = state_, limit = abort_seconds_] { finish(*state->link, limit); });
    std::unique_lock lock(state_->mutex);
    const auto ended = [&] { return state_->ended; };
    if (!left_ && state_->changed.wait_for(lock, std::chrono::duration<double>(seconds), ended)) return;
    ++connections_left_behind;
    log_warning("NCCL has not ended its connection yet; the job continues without it");
  }

  NcclLink& link() const { return *state_->link; }
  // Polls until a call that NCCL may continue in the background is complete. Throws if it fails or takes too long.
  void wait_until_ready(std::string_view what, double seconds) const {
    Deadline deadline(seconds);
    Backoff backoff;
    for (;;) {
      const NcclLink::Report report = link().report();
      if (report.state == NcclLink::State::ready) return;
      if (report.state == NcclLink::State::failed) {
        if (board_) board_->set_failed_with_others(true);
        fail(ExitCode::internal, "NCCL, {}: {}; another rank may have ended, see its log; NCCL_DEBUG=INFO says more",
             what, report.reason);
      }
      if (deadline.passed()) {
        fail(ExitCode::stalled,
             "NCCL, {}: not done within {:g} s; look for a rank that has stopped, and at the network that NCCL uses "
             "(NCCL_SOCKET_IFNAME, NCCL_DEBUG=INFO)",
             what, seconds);
      }
      backoff.pause();
    }
  }
  // Starts the abort and returns immediately. The link must not be used afterwards.
  void abort() noexcept {
    if (!ending_) end([state = state_] { state->link->abort(); });
  }

 private:
  struct State {
    explicit State(std::unique_ptr<NcclLink> l) : link(std::move(l)) {}
    const std::unique_ptr<NcclLink> link;
    std::mutex mutex;
    std::condition_variable changed;
    bool ended = false;
  };
  // Runs `ends_link` on a thread of its own.
  template <class EndsLink>
  void end(const EndsLink& ends_link) noexcept {
    ending_ = true;
    try {
      std::thread([state = state_, ends_link] {
        name_thread("nccl end");
        ends_link();
        const std::lock_guard lock(state->mutex);
        state->ended = true;
        state->changed.notify_all();
      }).detach();
    } catch (const std::exception&) {  // without a thread, it stays as it is: ending it would block here
      (void)new (std::nothrow) std::shared_ptr<State>(state_);
      left_ = true;
    }
  }
  // If another rank does not finish its link in time or has aborted it, this one is aborted. That loses nothing,
  // because all results have been waited for.
  static void finish(NcclLink& link, double seconds) noexcept {
    if (finalized(link, seconds)) {
      link.destroy();
    } else {
      link.abort();
    }
  }
  static bool finalized(NcclLink& link, double seconds) noexcept {
    try {
      link.finalize();
      Deadline deadline(seconds);
      Backoff backoff;
      for (;;) {
        const NcclLink::State state = link.report().state;
        if (state != NcclLink::State::in_progress) return state == NcclLink::State::ready;
        if (deadline.passed()) return false;
        backoff.pause();
      }
    } catch (const std::exception&) {
      return false;
    }
  }

  std::shared_ptr<State> state_;  // shared with the thread that ends the link, which may outlive this object
  ProgressBoard* const board_;    // may be null
  const double abort_seconds_;
  bool ending_ = false;
  bool left_ = false;  // the link is left as it is
};

// The thread that polls for errors, and the lock that serializes it with calls of the link.
class NcclCommunicator::Monitor {
 public:
  Monitor(Connection& connection, double seconds)
      : connection_(connection), seconds_(seconds), thread_([this] {
          name_thread("nccl watch");
          watch();
        }) {}
  ~Monitor() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // Runs `work`, which uses the link, and waits until its operations are enqueued, which NCCL may do in the background.
  // Throws if the link fails or has failed before.
  template <class Work>
  void with_link(std::string_view what, const Work& work) {
    std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    try {
      work();
      connection_.wait_until_ready(what, seconds_);
    } catch (...) {
      record_failure();
      throw;
    }
  }

  // Runs `launch`, which may block, without the lock, so that a failure is noticed meanwhile and the link aborted.
  // Throws if the link fails or has failed before.
  template <class Launch>
  void launch_captured(std::string_view what, const Launch& launch) {
    with_link(what, [] {});
    try {
      launch();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (failure_) std::rethrow_exception(failure_);  // the reason why the launch failed
      record_failure();
      throw;
    }
    with_link(what, [] {});
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kPollInterval, [&] { return stop_ || failure_; })) {
      try {
        if (connection_.link().report().state == NcclLink::State::failed) {
          connection_.wait_until_ready("operations in flight", seconds_);
        }
      } catch (...) {
        record_failure();
      }
    }
  }

  // Called while an exception is handled, with the lock held. failure_ is set before the abort starts, so no thread
  // uses the link during the abort.
  void record_failure() {
    failure_ = std::current_exception();
    connection_.abort();
  }

  Connection& connection_;
  const double seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr failure_;  // if set, the link is being or has been aborted
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

NcclCommunicator::NcclCommunicator(ProcessGroup& group, const Backend& backend, std::shared_ptr<NcclLibrary> library,
                                   NcclOptions options)
    : group_(group),
      library_(std::move(library)),
      options_(std::move(options)),
      reduction_(backend.make_stream()),
      ready_(backend.make_event()),
      done_(backend.make_event()) {
  connect();
}

NcclCommunicator::~NcclCommunicator() = default;

int NcclCommunicator::rank() const { return group_.rank(); }
int NcclCommunicator::size() const { return group_.size(); }

void NcclCommunicator::connect() {
  const NcclAddress address{
      .id = broadcast_id(group_, *library_), .rank = rank(), .size = size(), .algorithm = options_.algorithm};
  ProgressBoard* const board = group_.state().board;
  connection_ = std::make_unique<Connection>(library_->connect(address), board, options_.abort_seconds);
  try {
    connection_->wait_until_ready(fmt::format("connecting {} ranks", size()), options_.wait_seconds);
  } catch (...) {
    connection_->abort();
    throw;
  }
  monitor_ = std::make_unique<Monitor>(*connection_, options_.wait_seconds);
}

// NCCL does not use a connection again after an error, whatever the error was.
void NcclCommunicator::reconnect() {
  monitor_.reset();
  connection_->abort();  // a connection that has failed on some rank cannot be finished on the others
  connection_.reset();
  if (ProgressBoard* const board = group_.state().board) board->set_failed_with_others(false);
  connect();
}

template <class Enqueue>
void NcclCommunicator::enqueue(Stream& stream, std::string_view label, size_t bytes, const Enqueue& operation) {
  stream.record(*ready_);
  reduction_->wait_for(*ready_);
  monitor_->with_link(label, operation);
  ++statistics_.operations;
  statistics_.bytes += static_cast<int64_t>(bytes);
}

void NcclCommunicator::all_reduce(Stream& stream, std::span<float> values, std::string_view label) {
  enqueue(stream, label, values.size_bytes(), [&] { connection_->link().all_reduce(*reduction_, values); });
}

void NcclCommunicator::all_reduce(Stream& stream, std::span<double> values, std::string_view label) {
  enqueue(stream, label, values.size_bytes(), [&] { connection_->link().all_reduce(*reduction_, values); });
}

void NcclCommunicator::all_reduce(Stream& stream, HalfSpan values, std::string_view label) {
  enqueue(stream, label, values.values.size_bytes(), [&] { connection_->link().all_reduce(*reduction_, values); });
}

void NcclCommunicator::broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) {
  enqueue(stream, label, bytes.size(), [&] { connection_->link().broadcast(*reduction_, bytes, root); });
}

double NcclCommunicator::wait(Stream& stream) {
  monitor_->with_link("the end of a reduction", [] {});
  reduction_->record(*done_);
  stream.wait_for(*done_);
  return 0;
}

void NcclCommunicator::check() {
  monitor_->with_link("operations in flight", [] {});
}

// An abort may start during the launch: it frees nothing that captured work uses before that work has been destroyed.
void NcclCommunicator::enqueue_captured(const std::function<void()>& launch) {
  monitor_->launch_captured("a captured step", launch);
}

int NcclCommunicator::left_behind() noexcept { return connections_left_behind.load(); }

std::unique_ptr<NcclLibrary> open_nccl() {
  using Make = NcclLibrary*();
  const auto make = reinterpret_cast<Make*>(plugin_function("lockstep_cuda.so", "lockstep_open_nccl"));
  return std::unique_ptr<NcclLibrary>(make());
}

}  // namespace lockstep
