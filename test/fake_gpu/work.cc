#include "test/fake_gpu/work.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <unordered_set>

#include "lockstep/base/clock.h"
#include "test/backend/cuda_on_host/emulate.h"
#include "test/fake_gpu/memory.h"

namespace lockstep::fake_gpu {
namespace {

// All that has to be done before `target` is, itself included, in the order of `pending`.
std::list<WorkPtr> needed_for(const WorkPtr& target, const std::list<WorkPtr>& pending) {
  std::unordered_set<const Work*> found;
  std::vector<const Work*> open{target.get()};
  while (!open.empty()) {
    const Work* const work = open.back();
    open.pop_back();
    if (work->state == Work::State::done || !found.insert(work).second) continue;
    for (const WorkPtr& before : work->after) open.push_back(before.get());
  }
  std::list<WorkPtr> needed;
  std::ranges::copy_if(pending, std::back_inserter(needed),
                       [&](const WorkPtr& work) { return found.contains(work.get()); });
  return needed;
}

}  // namespace

bool Work::may_run() const {
  return state == State::waiting &&
         std::ranges::all_of(after, [](const WorkPtr& work) { return work->state == State::done; });
}

// Never destroyed: threads may use it to the end of the process.
Device& Device::get() {
  static auto* const instance = new Device;
  return *instance;
}

Device::Device() {
  const char* const wanted = std::getenv("FAKE_GPU_ORDER");
  set_order(wanted ? wanted : "eager");
}

void Device::set_order(const std::string& order) {
  if (order == "eager") {
    order_ = Order::eager;
    set_thread_order(ThreadOrder::ascending);
  } else if (order == "lazy") {
    order_ = Order::lazy;
    set_thread_order(ThreadOrder::descending);
  } else if (order.starts_with("random:")) {
    order_ = Order::random;
    random_.seed(static_cast<unsigned>(std::stoul(order.substr(7))));
    set_thread_order(ThreadOrder::shuffled);
  } else {
    throw std::runtime_error(fmt::format("FAKE_GPU_ORDER is eager, lazy or random:N, not {}", order));
  }
}

void Device::fail(const std::string& what) {
  if (fault_.empty()) fault_ = what;
}

void Device::expect_well() const {
  if (!fault_.empty()) throw Refused(cudaErrorLaunchFailure, fault_);
}

double Device::seconds() const { return std::getenv("FAKE_GPU_PLANS") ? worked_seconds_ : monotonic_seconds(); }

void Device::finish(const WorkPtr& work) {
  work->state = Work::State::done;
  work->after.clear();
  changed_.notify_all();
}

// With the lock held, so that one piece of work runs at a time. What is done by another thread goes on without it.
void Device::run(const WorkPtr& work) {
  pending_.remove(work);
  work->state = Work::State::running;
  if (work->operation.start && fault_.empty()) {
    ++elsewhere_;
    work->operation.start([this, work] {
      Lock own = this->lock();
      --elsewhere_;
      finish(work);
      if (order_ == Order::eager) go_on();
    });
    return;
  }
  if (work->operation.run && fault_.empty()) {
    const std::string what = fmt::format("{} on stream {}", work->operation.what, work->stream);
    const OpenMemory open(what.c_str());
    try {
      work->operation.run();
      worked_seconds_ += work->operation.seconds;
    } catch (const std::exception& error) {
      fail(fmt::format("{}: {}", what, error.what()));
    }
  }
  finish(work);
}

// What to do next, or null: nothing may run.
WorkPtr Device::choose(const std::list<WorkPtr>& from) {
  std::vector<WorkPtr> ready;
  for (const WorkPtr& work : from) {
    if (!work->may_run()) continue;
    if (order_ != Order::random) return work;
    ready.push_back(work);
  }
  return ready.empty() ? nullptr : ready[random_() % ready.size()];
}

void Device::pause(Lock& lock) { changed_.wait_for(lock, std::chrono::milliseconds(100)); }

void Device::go_on() {
  if (order_ == Order::lazy) return;
  constexpr unsigned kMostAtOnce = 4;
  unsigned left = order_ == Order::eager ? ~0U : static_cast<unsigned>(random_() % kMostAtOnce);
  for (; left > 0; --left) {
    const WorkPtr next = choose(pending_);
    if (!next) return;
    run(next);
  }
}

void Device::enqueue(WorkPtr work) {
  pending_.push_back(std::move(work));
  go_on();
}

void Device::run_until_done(Lock& lock, const WorkPtr& work, std::list<WorkPtr>& among) {
  while (work->state != Work::State::done) {
    if (&among != &pending_) {
      std::erase_if(among, [](const WorkPtr& other) { return other->state == Work::State::done; });
    }
    if (const WorkPtr next = choose(among)) {
      run(next);
    } else {
      pause(lock);
    }
  }
}

void Device::wait(Lock& lock, const WorkPtr& work) {
  if (!work) return;
  std::list<WorkPtr> needed;
  if (order_ == Order::lazy) needed = needed_for(work, pending_);
  run_until_done(lock, work, order_ == Order::lazy ? needed : pending_);
  close_device_memory();
}

void Device::wait_all(Lock& lock) {
  while (!pending_.empty()) wait(lock, WorkPtr(pending_.back()));
  while (elsewhere_ > 0) pause(lock);
}

void Device::go_on_to_next_start() {
  Lock own = lock();
  const auto found =
      std::ranges::find_if(pending_, [](const WorkPtr& work) { return work->operation.start != nullptr; });
  if (found == pending_.end()) return;
  const WorkPtr target = *found;
  const std::list<WorkPtr> needed = needed_for(target, pending_);
  while (target->state == Work::State::waiting) {
    const WorkPtr next = choose(needed);
    if (!next) break;  // it waits for what another thread is about to end
    run(next);
  }
  close_device_memory();
}

bool Device::query(const WorkPtr& work) {
  if (!work) return true;
  if (work->state == Work::State::done) return true;
  if (order_ == Order::lazy) {
    const std::list<WorkPtr> needed = needed_for(work, pending_);
    if (const WorkPtr next = choose(needed)) run(next);
  } else {
    go_on();
  }
  close_device_memory();
  return work->state == Work::State::done;
}

const Work* Device::user_of(const void* data, size_t bytes) const {
  const auto* const begin = static_cast<const char*>(data);
  for (const WorkPtr& work : pending_) {
    for (const HostRange& range : work->operation.pinned) {
      const auto* const other = static_cast<const char*>(range.data);
      if (other < begin + bytes && begin < other + range.bytes) return work.get();
    }
  }
  return nullptr;
}

}  // namespace lockstep::fake_gpu
