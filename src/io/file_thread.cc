#include "lockstep/io/file_thread.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "lockstep/base/thread_name.h"

namespace lockstep {
namespace {

constexpr double kEndSeconds = 5;  // for a thread without jobs to end, even on a busy machine

std::atomic<int> threads_left_behind{0};

}  // namespace

struct FileThread::Jobs {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> waiting;
  bool running = false, last_posted = false, ended = false;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return last_posted || !waiting.empty(); });
      if (waiting.empty()) break;
      std::function<void()> job = std::move(waiting.front());
      waiting.pop_front();
      running = true;
      lock.unlock();
      job();
      job = nullptr;  // destroys what it owns before others see that it has run
      lock.lock();
      running = false;
      changed.notify_all();
    }
    ended = true;
    changed.notify_all();
  }
};

FileThread::FileThread(const char* name)
    : jobs_(std::make_shared<Jobs>()), thread_([name, jobs = jobs_] {
        name_thread(name);
        jobs->run();
      }) {}

FileThread::~FileThread() {
  if (thread_.joinable()) join_within(wait_idle(0) ? kEndSeconds : 0);
}

void FileThread::post(std::function<void()> job) {
  const std::lock_guard lock(jobs_->mutex);
  jobs_->waiting.push_back(std::move(job));
  jobs_->changed.notify_all();
}

bool FileThread::wait_idle(double seconds) const {
  std::unique_lock lock(jobs_->mutex);
  return jobs_->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                                 [&] { return jobs_->waiting.empty() && !jobs_->running; });
}

bool FileThread::join_within(double seconds) {
  if (!thread_.joinable()) return true;
  std::unique_lock lock(jobs_->mutex);
  jobs_->last_posted = true;
  jobs_->changed.notify_all();
  const bool ended =
      jobs_->changed.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return jobs_->ended; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    ++threads_left_behind;
    thread_.detach();
  }
  return ended;
}

int FileThread::left_behind() noexcept { return threads_left_behind.load(); }

}  // namespace lockstep
