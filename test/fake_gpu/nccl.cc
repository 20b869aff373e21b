// NCCL of the fake device, as a communicator that does not block: calls answer ncclInProgress, and a thread of the
// communicator's enqueues them a moment later; another runs them, so that a device goes on while its host waits for
// something else. A captured collective keeps a reference to its communicator, and an abort waits until no graph has
// one, as NCCL's does. A rank that aborts a connection while another is in a collective is a fault, because NCCL's
// kernel there may wait forever; finalizing meets all ranks.
//
// FAKE_NCCL_FAIL=RANK:N makes the N-th collective that starts on this rank the one at which the connection breaks;
// FAKE_NCCL_NO_CAPTURE=RANK:N makes the N-th collective that is captured on this rank one that NCCL cannot capture;
// FAKE_NCCL_NAN=M:N puts NaN first into what each of the collectives M to N leaves, broadcasts counted, of float32;
// FAKE_NCCL_LINGER=RANK:MS keeps this rank MS milliseconds longer in each collective than the others;
// FAKE_NCCL_ABORT_HANGS=RANK makes aborts on this rank never return.
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <thread>

#include "test/fake_gpu/memory.h"
#include "test/fake_gpu/nccl_meeting.h"
#include "test/fake_gpu/planted.h"
#include "test/fake_gpu/runtime.h"

namespace lockstep::fake_gpu {
namespace {

using namespace std::chrono_literals;

struct Job {
  Collective collective;
  void* data;
  std::function<void()> done;
};

// Whether the first number of this collective's sums is to be none.
bool is_poisoned(int number) {
  const auto collectives = two_numbers("FAKE_NCCL_NAN");
  return collectives && collectives->first <= number && number <= collectives->second;
}

class Communicator {
 public:
  Communicator(std::string name, int rank, int size)
      : name_(std::move(name)),
        rank_(rank),
        size_(size),
        fails_at_(number_for("FAKE_NCCL_FAIL", rank)),
        refuses_at_(number_for("FAKE_NCCL_NO_CAPTURE", rank)),
        lingers_(number_for("FAKE_NCCL_LINGER", rank)) {
    (void)cudaGetDevice(&device_);
    launcher_ = std::thread([this] { launch_all(); });
    runner_ = std::thread([this] { run_all(); });
  }

  int rank() const { return rank_; }
  ncclResult_t state() const { return state_; }
  std::string error() {
    const std::lock_guard lock(mutex_);
    return error_;
  }

  // Enqueues later, from the communicator's own thread. A call before the one before it is complete is refused.
  ncclResult_t post(const Collective& collective, void* data, cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    if (state_ != ncclSuccess) return state_ == ncclInProgress ? ncclInvalidArgument : state_.load();
    state_ = ncclInProgress;
    launches_.push_back({collective, data, stream});
    changed_.notify_all();
    return ncclInProgress;
  }

  // Completes what is in flight and meets the other ranks, from the communicator's own thread.
  ncclResult_t finalize() {
    const std::lock_guard lock(mutex_);
    if (state_ != ncclSuccess) return state_ == ncclInProgress ? ncclInvalidArgument : state_.load();
    state_ = ncclInProgress;
    finalizing_ = true;
    changed_.notify_all();
    return ncclInProgress;
  }
  bool finalized() const { return finalizing_ && state_ == ncclSuccess; }

  // Ends the collectives in flight without results, and waits for the graphs that contain collectives.
  void abort() {
    expect_nobody_waits();
    close();
  }

  // Waits for collectives that were enqueued, which after an abort end without results, and for the graphs that contain
  // some.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      aborted_ = true;
    }
    changed_.notify_all();
    launcher_.join();
    while (references_ > 0 || in_flight_ > 0) std::this_thread::sleep_for(1ms);
    closed_ = true;
    changed_.notify_all();
    runner_.join();
  }

 private:
  struct Launch {
    Collective collective;
    void* data;
    cudaStream_t stream;
  };

  void fail(ncclResult_t state, const std::string& why) {
    const std::lock_guard lock(mutex_);
    error_ = why;
    state_ = state;
  }

  // The other rank would wait forever, unless this one has a failure to report.
  void expect_nobody_waits() {
    const bool is_well = state_ == ncclSuccess || state_ == ncclInProgress;
    if (!connected_ || !is_well || std::getenv("FAKE_NCCL_FAIL")) return;
    const std::string left_behind = meeting_->left_behind();
    if (left_behind.empty()) return;
    std::fprintf(stderr, "fake GPU: NCCL: %s\n", left_behind.c_str());
    std::abort();
  }

  // ---- the launcher
  void launch_all() {
    (void)cudaSetDevice(device_);
    try {
      meeting_ = std::make_unique<Meeting>(name_, rank_, size_);
      if (!meeting_->wait_for_all([this] { return !aborted_; })) return;
      connected_ = true;
      state_ = ncclSuccess;
    } catch (const std::exception& error) {
      return fail(ncclSystemError, error.what());
    }
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return aborted_ || finalizing_ || !launches_.empty(); });
      if (aborted_) return;
      if (launches_.empty()) return meet_at_the_end(lock);
      const Launch launch = launches_.front();
      launches_.pop_front();
      lock.unlock();
      enqueue(launch);
      lock.lock();
      if (launches_.empty() && state_ == ncclInProgress) state_ = ncclSuccess;
    }
  }

  void meet_at_the_end(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [this] { return aborted_ || in_flight_ == 0; });
    lock.unlock();
    try {
      if (meeting_->finalize([this] { return !aborted_; })) state_ = ncclSuccess;
    } catch (const std::exception& error) {
      fail(ncclInternalError, error.what());
    }
  }

  void enqueue(Launch launch) {
    const cudaError_t status = call([&](Lock&) {
      Stream& stream = stream_of(launch.stream);
      launch.collective.captured = stream.capture != nullptr;
      Operation operation{
          .what = launch.collective.kind == Collective::Kind::broadcast ? "ncclBroadcast" : "ncclAllReduce",
          .run = nullptr};
      operation.start = [this, launch](std::function<void()> done) {
        const std::lock_guard lock(mutex_);
        if (launch.collective.captured) ++in_flight_;  // others are in flight since they were enqueued
        jobs_.push_back({launch.collective, launch.data, std::move(done)});
        changed_.notify_all();
      };
      if (stream.capture) {
        if (++captured_ == refuses_at_) {
          throw Refused(cudaErrorStreamCaptureUnsupported, "this NCCL cannot capture collectives");
        }
        ++references_;
        operation.keeps =
            std::shared_ptr<void>(this, [](void* self) { --static_cast<Communicator*>(self)->references_; });
      } else {
        ++in_flight_;
      }
      submit(stream, std::move(operation));
    });
    if (status != cudaSuccess) fail(ncclUnhandledCudaError, cudaGetErrorString(status));
  }

  // ---- the runner
  void run_all() {
    while (!closed_) {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, 1ms, [this] { return closed_ || !jobs_.empty(); })) {
        lock.unlock();
        // The host may wait for another rank, which waits for this device.
        if (connected_ && (aborted_ || finalizing_ || meeting_->is_waited_for())) Device::get().go_on_to_next_start();
        continue;
      }
      if (jobs_.empty()) continue;
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      run(job);
      job.done();
      lock.lock();
      --in_flight_;
      changed_.notify_all();
    }
  }

  void run(const Job& job) {
    if (++started_ == fails_at_) fail(ncclRemoteError, "fake NCCL: the connection was closed by the remote peer");
    while (state_ == ncclRemoteError && !aborted_) std::this_thread::sleep_for(1ms);
    if (aborted_) return;
    meeting_->set_collective(started_);
    try {
      const OpenMemory open("a collective of NCCL");
      (void)meeting_->run(job.collective, job.data, [this] { return !aborted_; });
      if (is_poisoned(started_) && job.collective.type == ncclFloat32) *static_cast<float*>(job.data) = NAN;
    } catch (const std::exception& error) {
      fail(ncclInternalError, error.what());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(lingers_));
    meeting_->set_collective(0);
  }

  const std::string name_;
  const int rank_, size_, fails_at_, refuses_at_, lingers_;
  int device_ = 0;
  std::unique_ptr<Meeting> meeting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Launch> launches_;
  std::deque<Job> jobs_;
  std::string error_;
  std::atomic<ncclResult_t> state_{ncclInProgress};
  std::atomic<bool> connected_{false}, finalizing_{false}, aborted_{false}, closed_{false};
  std::atomic<int> references_{0};  // of graphs
  std::atomic<int> in_flight_{0};   // collectives
  int started_ = 0, captured_ = 0;
  std::thread launcher_, runner_;
};

// The number of threads inside of an abort. A thread that is there when the libraries end crashes, as in NCCL.
struct Aborts {
  ~Aborts() {
    if (inside == 0) return;
    std::fputs("fake GPU: NCCL: the process ends while a thread is in ncclCommAbort\n", stderr);
    std::abort();
  }
  std::atomic<int> inside{0};
} aborts;

void hang_if_scripted(int rank) {
  const char* const script = std::getenv("FAKE_NCCL_ABORT_HANGS");
  while (script && std::atoi(script) == rank) std::this_thread::sleep_for(1s);
}

Communicator& communicator_of(ncclComm_t handle) { return *reinterpret_cast<Communicator*>(handle); }

ncclResult_t post(ncclComm_t handle, const Collective& collective, void* data, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return ncclSuccess;
  if (const std::string trouble = trouble_with(data, bytes); !trouble.empty()) return ncclInvalidArgument;
  return communicator_of(handle).post(collective, data, stream);
}

}  // namespace
}  // namespace lockstep::fake_gpu

using namespace lockstep::fake_gpu;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> number{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  *id = {};
  const std::string name = fmt::format("/lockstep_fake_nccl_{}_{}_{}", ::getpid(), now, number++);
  name.copy(id->internal, sizeof id->internal - 1);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
  if (!config || config->size != initial.size || config->magic != initial.magic) return ncclInvalidArgument;
  if (config->blocking != 0) return ncclInvalidArgument;  // the fake is for those that do not block
  *handle = reinterpret_cast<ncclComm_t>(new Communicator(id.internal, rank, size));
  return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  *state = communicator_of(handle).state();
  return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t handle, cudaStream_t stream) {
  if (from != to || operation != ncclSum) return ncclInvalidArgument;
  const size_t bytes = count * (type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : 2);
  return post(handle, {Collective::Kind::all_reduce, static_cast<uint32_t>(type), count, 0}, to, bytes, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t handle,
                           cudaStream_t stream) {
  if (from != to || type != ncclUint8) return ncclInvalidArgument;
  return post(handle, {Collective::Kind::broadcast, static_cast<uint32_t>(type), count, static_cast<uint32_t>(root)},
              to, count, stream);
}
ncclResult_t ncclCommFinalize(ncclComm_t handle) { return communicator_of(handle).finalize(); }
ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  if (!communicator_of(handle).finalized()) return ncclInvalidArgument;  // the fake is for those that finalize it
  communicator_of(handle).close();
  delete &communicator_of(handle);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  ++aborts.inside;
  communicator_of(handle).abort();
  hang_if_scripted(communicator_of(handle).rank());
  delete &communicator_of(handle);
  --aborts.inside;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t status) {
  switch (status) {
    case ncclSuccess:
      return "no error";
    case ncclInProgress:
      return "in progress";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclInvalidArgument:
      return "invalid argument";
    default:
      return "internal error";
  }
}
const char* ncclGetLastError(ncclComm_t handle) {
  static thread_local std::string text;
  text = communicator_of(handle).error();
  return text.c_str();
}
}
