#include "lockstep/comm/transport/mpi_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "comm/group/process_group_state.h"
#include "comm/group/roll_call.h"
#include "comm/transport/doorbell.h"
#include "comm/transport/hierarchical_all_reduce.h"
#include "comm/transport/pending_operations.h"
#include "comm/transport/straggler_waits.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/thread_name.h"
#include "lockstep/base/trace.h"
#include "lockstep/comm/group/process_group.h"

namespace lockstep {
namespace {

// Shorter sums are bound by message latency, which is lowest in MPI's tree algorithm.
constexpr int64_t kReduceScatterElements = 16384;

template <class T>
Operation sum_of(std::span<T> values, MPI_Datatype type, DType dtype, std::string_view label) {
  return {.data = std::as_writable_bytes(values).data(),
          .count = static_cast<int64_t>(values.size()),
          .element_bytes = sizeof(T),
          .type = type,
          .dtype = dtype,
          .record = {.label = std::string(label)}};
}

}  // namespace

// The communication thread, and the state that it shares with the thread of the step.
class MpiCommunicator::Driver {
 public:
  Driver(PendingOperations::Comms comms, const ProcessGroup& ranks, HierarchicalAllReduce* shared,
         MpiCommunicatorOptions options)
      : shared_(shared),
        bell_(shared ? shared->local().bell() : Doorbell(own_bell_)),
        group_(ranks.state()),
        options_(std::move(options)),
        pending_(std::move(comms), {ranks.rank(), ranks.size()}, shared, options_.elements_per_call),
        straggler_waits_(ranks.size()),
        thread_([this] { run(); }) {}

  ~Driver() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    bell_.ring();
    thread_.join();
    if (queue_.empty() && pending_.empty()) return;
    if (!error_) log_warning("{} reductions were abandoned", queue_.size() + pending_.size());
    pending_.abandon();
  }

  void enqueue(Operation operation) {
    if (shared_ && operation.kind != Operation::Kind::broadcast) {
      const auto bytes = static_cast<size_t>(operation.count * operation.element_bytes);
      if (const auto range = shared_->find({operation.data, bytes}, operation.dtype))
        operation.shared = {.range = *range, .wire = operation.wire};
    }
    const int64_t number = group_.board ? group_.board->begin(CollectiveKind::reduction, operation.record.label) : 0;
    {
      std::lock_guard lock(mutex_);
      add(std::move(operation), number);
    }
    bell_.ring();
  }

  // Waits only for this operation.
  double run_immediately(Operation operation) {
    const double begin = monotonic_seconds();
    operation.immediate = true;
    const int64_t number = group_.board ? group_.board->begin(CollectiveKind::reduction, operation.record.label) : 0;
    std::unique_lock lock(mutex_);
    const size_t index = outstanding_.size();
    add(std::move(operation), number);
    wait(lock, [&] { return error_ || outstanding_[index].finished; });
    const double waited = monotonic_seconds() - begin;
    statistics_.exposed_seconds += waited;
    return waited;
  }

  double wait() {
    const double begin = monotonic_seconds();
    std::unique_lock lock(mutex_);
    wait(lock, [&] { return error_ || finished_ == outstanding_.size(); });
    outstanding_.clear();
    finished_ = 0;
    const double waited = monotonic_seconds() - begin;
    statistics_.exposed_seconds += waited;
    return waited;
  }

  CommStatistics statistics() const {
    std::lock_guard lock(mutex_);
    CommStatistics result = statistics_;
    result.straggler_wait_seconds = straggler_waits_.seconds();
    return result;
  }

 private:
  struct Outstanding {
    std::string label;
    int64_t number = 0;  // its number on the progress board
    bool finished = false;
  };

  // Called with the lock held.
  void add(Operation operation, int64_t number) {
    if (error_) std::rethrow_exception(error_);
    operation.index = outstanding_.size();
    operation.record.bytes = operation.count * operation.element_bytes;
    operation.record.queued = monotonic_seconds();
    outstanding_.push_back({.label = operation.record.label, .number = number});
    if (operation.immediate) {
      queue_.push_front(std::move(operation));
    } else {
      queue_.push_back(std::move(operation));
    }
  }

  // Called with the lock held. Returns once `condition` is true; throws on errors and after the time limit.
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, const Condition& condition) {
    waiting_ = true;
    bell_.ring();
    Deadline deadline(options_.abort_seconds);
    while (!condition()) {
      const Outstanding oldest = oldest_outstanding();
      const ScopedWait waiting(group_.board, {CollectiveKind::reduction, oldest.number, oldest.label});
      done_.wait_for(lock, kCheckInterval, [&] { return condition(); });
      if (!condition() && deadline.passed()) fail_stalled(lock);
    }
    waiting_ = false;
    if (error_) std::rethrow_exception(error_);
  }

  // Called with the lock held. Returns the oldest operation that is not finished; the label includes the stage that it
  // is in and the rank that it waits for there, if they are known.
  Outstanding oldest_outstanding() const {
    const auto oldest = std::ranges::find_if(outstanding_, [](const Outstanding& o) { return !o.finished; });
    Outstanding result = *oldest;
    const auto& [index, two_stages, stage] = oldest_wait_;
    if (!two_stages || index != static_cast<size_t>(oldest - outstanding_.begin())) return result;
    result.label += stage.between_hosts ? " between hosts" : " within the host";
    if (stage.straggler >= 0) result.label += fmt::format(", for {}", describe_rank(group_, stage.straggler));
    return result;
  }

  [[noreturn]] void fail_stalled(std::unique_lock<std::mutex>& lock) {
    const Outstanding oldest = oldest_outstanding();
    const std::string text = fmt::format("'{}' did not finish within {:g} s ({} of {} reductions are done)",
                                         oldest.label, options_.abort_seconds, finished_, outstanding_.size());
    if (group_.board) group_.board->wait_begins(CollectiveKind::reduction, oldest.number, oldest.label);
    lock.unlock();
    const Error error(ExitCode::stalled, text + who_is_behind(group_));
    lock.lock();
    error_ = std::make_exception_ptr(error);
    throw error;
  }

  void run() noexcept {
    try {
      name_thread("reduction");
      drive();
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      done_.notify_all();
    }
  }

  void drive() {
    PollPause pause;
    std::deque<Operation> queued;
    while (true) {
      const uint32_t rings = bell_.rings();
      PollPause::Reason reason;
      // This comes before take_finished(), which removes operations as soon as they are complete.
      const PendingOperations::OldestWait oldest = pending_.oldest_wait();
      {
        std::lock_guard lock(mutex_);
        straggler_waits_.update(oldest.stage.straggler, monotonic_seconds());
        oldest_wait_ = oldest;
        if (stop_) return;
        queued.swap(queue_);
        reason.waiting = waiting_;
      }
      if (pending_.empty()) active_since_ = monotonic_seconds();
      for (Operation& operation : queued) pending_.start(std::move(operation));
      queued.clear();
      const std::vector<Operation> finished = pending_.take_finished();
      if (!finished.empty()) {
        report(finished);
        pause.progressed();
        continue;
      }
      reason.polling = pending_.needs_polling();
      pause.wait(bell_, rings, reason);
    }
  }

  void report(const std::vector<Operation>& finished) {
    for (const Operation& operation : finished) {
      trace_operation("reduction", operation.record.label, operation.record.started, operation.record.finished);
    }
    if (options_.observer) {
      for (const Operation& operation : finished) options_.observer(operation.record);
    }
    std::lock_guard lock(mutex_);
    account(finished);
    done_.notify_all();
  }

  // Called with the lock held.
  void account(const std::vector<Operation>& finished) {
    for (const Operation& operation : finished) {
      outstanding_[operation.index].finished = true;
      ++finished_;
      ++statistics_.operations;
      statistics_.bytes += operation.record.bytes;
    }
    if (pending_.empty()) statistics_.active_seconds += monotonic_seconds() - active_since_;
  }

  static constexpr std::chrono::seconds kCheckInterval{1};

  HierarchicalAllReduce* const shared_;  // null if all operations use MPI
  uint32_t own_bell_ = 0;                // used if there is no bell in shared memory
  const Doorbell bell_;                  // wakes the communication thread
  const ProcessGroupState& group_;
  const MpiCommunicatorOptions options_;

  // Only the communication thread uses these, and the destructor after the thread has ended.
  PendingOperations pending_;
  double active_since_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable done_;  // wakes wait()
  std::deque<Operation> queue_;
  std::vector<Outstanding> outstanding_;  // operations since the last wait()
  size_t finished_ = 0;                   // number of these that are finished
  PendingOperations::OldestWait oldest_wait_;
  bool waiting_ = false;  // a thread is in wait()
  bool stop_ = false;
  std::exception_ptr error_;
  CommStatistics statistics_;
  StragglerWaits straggler_waits_;

  std::thread thread_;  // last: it uses all of the above
};

MpiCommunicator::MpiCommunicator(ProcessGroup& group, MpiCommunicatorOptions options) : group_(group) {
  require(options.elements_per_call > 0 && options.elements_per_call <= int64_t{1} << 30,
          "a call of MPI cannot carry {} elements", options.elements_per_call);
  if (group.size() == 1) return;
  group.barrier({.what = "the reduction's communicator"});
  const ProcessGroupState& state = group.state();
  const auto make_comm = [&] { return duplicate(state.comm.get(), group.limit(), "the reduction's communicator"); };
  PendingOperations::Comms comms{.in_order = make_comm(), .immediate = make_comm()};
  HostLayout hosts(options.first_on_host.empty() ? group.first_on_host() : options.first_on_host, group.rank());
  plan_ = fmt::format("gradients are summed over MPI by {} ranks", group.size());
  if (hosts.hosts() == group.size()) {
    plan_ += ", each on a host of its own";
  } else if (options.shared_memory) {
    auto [all_reduce, reason] = HierarchicalAllReduce::make(group, std::move(hosts), make_comm());
    shared_ = std::move(all_reduce);
    not_shared(reason);
  }
  driver_ = std::make_unique<Driver>(std::move(comms), group, shared_.get(), std::move(options));
}

MpiCommunicator::~MpiCommunicator() = default;

std::string MpiCommunicator::plan() const {
  if (!has_buffer_) return plan_;
  const HostLayout& hosts = shared_->hosts();
  if (hosts.hosts() == 1) {
    return fmt::format("gradients are summed in memory that the {} ranks of this host share", size());
  }
  return fmt::format(
      "gradients are summed in two stages: in memory that the ranks of a host share, then over MPI between {}",
      hosts.describe());
}

void MpiCommunicator::not_shared(const std::string& reason) {
  constexpr std::string_view kNote = ", which cannot share memory";
  if (reason.empty() || plan_.ends_with(kNote)) return;  // it is the same for every buffer
  plan_ += kNote;
  if (!group_.is_root()) return;
  log_warning("the ranks of this host cannot share memory, so gradients go through MPI, which is slower: {}", reason);
}

Buffer MpiCommunicator::shared_buffer(size_t bytes) {
  if (!shared_ || bytes == 0) return {};
  const auto [memory, reason] = shared_->local().allocate(group_, bytes);
  not_shared(reason);
  has_buffer_ = has_buffer_ || !memory.empty();
  return memory.empty() ? Buffer() : Buffer(memory.data(), memory.size(), [](void*, size_t) noexcept {});
}

int MpiCommunicator::rank() const { return group_.rank(); }
int MpiCommunicator::size() const { return group_.size(); }

void MpiCommunicator::all_reduce(Stream& stream, std::span<float> values, std::string_view label) {
  if (!driver_) return;
  stream.wait();
  Operation operation = sum_of(values, MPI_FLOAT, DType::f32, label);
  if (operation.count >= kReduceScatterElements) operation.kind = Operation::Kind::reduce_scatter;
  driver_->enqueue(std::move(operation));
}

void MpiCommunicator::all_reduce(Stream& stream, std::span<double> values, std::string_view label) {
  if (!driver_) return;
  stream.wait();
  driver_->enqueue(sum_of(values, MPI_DOUBLE, DType::f64, label));
}

void MpiCommunicator::all_reduce(Stream& stream, HalfSpan values, std::string_view label) {
  if (!driver_) return;
  stream.wait();
  Operation operation = sum_of(values.values, MPI_UINT16_T, values.type, label);
  operation.kind = Operation::Kind::reduce_scatter;
  driver_->enqueue(std::move(operation));
}

void MpiCommunicator::all_reduce_rounded(Stream& stream, std::span<float> values, DType wire, std::string_view label) {
  if (!rounds_between_hosts(values)) return all_reduce(stream, values, label);
  stream.wait();
  Operation operation = sum_of(values, MPI_FLOAT, DType::f32, label);
  operation.wire = wire;
  driver_->enqueue(std::move(operation));
}

bool MpiCommunicator::rounds_between_hosts(std::span<const float> values) const {
  return shared_ && shared_->hosts().hosts() > 1 && shared_->find(std::as_bytes(values), DType::f32).has_value();
}

void MpiCommunicator::broadcast(Stream& stream, std::span<std::byte> bytes, int root, std::string_view label) {
  if (!driver_) return;
  stream.wait();
  driver_->enqueue({.kind = Operation::Kind::broadcast,
                    .data = bytes.data(),
                    .count = static_cast<int64_t>(bytes.size()),
                    .root = root,
                    .record = {.label = std::string(label)}});
}

double MpiCommunicator::all_reduce_now(Stream& stream, std::span<float> values, std::string_view label) {
  if (!driver_) return 0;
  stream.wait();
  return driver_->run_immediately(sum_of(values, MPI_FLOAT, DType::f32, label));
}

double MpiCommunicator::wait(Stream&) { return driver_ ? driver_->wait() : 0; }

CommStatistics MpiCommunicator::statistics() const { return driver_ ? driver_->statistics() : CommStatistics{}; }

}  // namespace lockstep
