// What the fake device has been given and not done yet. Work runs on whichever thread waits for some, one piece at a
// time, in an order that FAKE_GPU_ORDER chooses and that respects nothing but what each piece was put after:
//   eager       at once, as soon as it may
//   lazy        only when something waits for it, and only what that needs
//   random:N    what may run, in an order that the seed N chooses, some of it at every call
// In the second the threads of a kernel's blocks run in descending order, in the third shuffled. Programs that order
// their work by streams and events, and kernels that have their barriers, have the same bits in all three.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::fake_gpu {

struct HostRange {
  const void* data;
  size_t bytes;
};

// What can be enqueued or captured.
struct Operation {
  std::string what;           // for messages, as "map_rows"
  std::function<void()> run;  // throws what ends the device; null: nothing to do
  // Instead of `run`: begins what another thread ends, which then calls done.
  std::function<void(std::function<void()> done)> start = {};
  std::vector<HostRange> pinned = {};     // host memory that it reads or writes
  std::shared_ptr<void> keeps = nullptr;  // lives as long as a graph that holds the operation
  double seconds = 0;                     // that it takes, where FAKE_GPU_PLANS decides
};

struct Work {
  Operation operation;
  int stream = 0;
  std::vector<std::shared_ptr<Work>> after;
  enum class State { waiting, running, done } state = State::waiting;

  bool may_run() const;
};
using WorkPtr = std::shared_ptr<Work>;

// What a call is refused with: CUDA's code, and the reason in words.
struct Refused : std::runtime_error {
  Refused(cudaError_t code, const std::string& why) : std::runtime_error(why), status(code) {}
  cudaError_t status;
};

using Lock = std::unique_lock<std::mutex>;

class Device {
 public:
  static Device& get();

  // The order that FAKE_GPU_ORDER names; set only while no work is in progress.
  void set_order(const std::string& order);

  Lock lock() { return Lock(mutex_); }

  // All of these are called with the lock, which is released while they wait.
  void enqueue(WorkPtr work);
  void wait(Lock& lock, const WorkPtr& work);  // null: nothing to wait for
  void wait_all(Lock& lock);
  // Whether it is done; goes on with it a little if not, as time would.
  bool query(const WorkPtr& work);
  // For a rank that waits for this device while its host does something else: starts the next work that another thread
  // completes, with what it needs. Called without the lock.
  void go_on_to_next_start();
  // What an event that the device comes by keeps: the host's time, or with FAKE_GPU_PLANS that of the work before it.
  double seconds() const;
  // The work that has yet to read or write these bytes of host memory, or null.
  const Work* user_of(const void* data, size_t bytes) const;

  // The first fault of the device's, after which every call fails, as on a GPU.
  void fail(const std::string& what);
  void expect_well() const;                // throws Refused
  void forget_fault() { fault_.clear(); }  // for tests that caused it

 private:
  Device();
  void run(const WorkPtr& work);
  void finish(const WorkPtr& work);
  WorkPtr choose(const std::list<WorkPtr>& from);
  void go_on();            // after a call
  void pause(Lock& lock);  // until work is done elsewhere, or a moment
  void run_until_done(Lock& lock, const WorkPtr& work, std::list<WorkPtr>& among);

  enum class Order { eager, lazy, random } order_ = Order::eager;
  std::mt19937 random_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<WorkPtr> pending_;  // as it was enqueued, which respects what is after what
  int elsewhere_ = 0;           // pieces of work that other threads are about to end
  double worked_seconds_ = 0;
  std::string fault_;
};

}  // namespace lockstep::fake_gpu
