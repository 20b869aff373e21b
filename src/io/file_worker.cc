#include "lockstep/io/file_worker.h"

#include <mutex>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

constexpr double kLastSeconds = 5;

void run_or_log(const FileJob& job) {
  try {
    job.run();
  } catch (const std::exception& error) {
    log_warning("{}", error.what());
  }
}

}  // namespace

// Shared by the worker and its jobs, because either may end last.
class FileWorker::Queue {
 public:
  explicit Queue(FileWorkerOptions options) : options_(std::move(options)) {}

  bool admit(const FileJob& job);
  void run(FileJob& job);
  int64_t dropped() const;
  void report_total() const;
  std::string describe_rest() const;

 private:
  bool has_room(const FileJob& job) const {
    return job.required || (waiting_ < options_.max_jobs && bytes_ + job.bytes <= options_.max_bytes);
  }
  std::string describe_delay();
  std::string describe_recovery();

  const FileWorkerOptions options_;
  mutable std::mutex mutex_;
  size_t waiting_ = 0;        // number of jobs that wait
  size_t bytes_ = 0;          // of jobs that wait or run
  double running_since_ = 0;  // 0: no job runs
  bool slow_reported_ = false;
  bool drops_reported_ = false;  // since the disk answered last
  int64_t dropped_ = 0, dropped_before_ = 0;
};

// Counts the job as one that waits, or as dropped if there is no room.
bool FileWorker::Queue::admit(const FileJob& job) {
  std::string text;
  bool taken = false;
  {
    std::lock_guard lock(mutex_);
    taken = has_room(job);
    if (taken) {
      bytes_ += job.bytes;
      ++waiting_;
      text = describe_delay();
    } else if (++dropped_; !std::exchange(drops_reported_, true)) {
      text = fmt::format("{}: {} writes wait for the disk; further rows and events are dropped until it answers",
                         options_.directory, waiting_);
    }
  }
  if (!text.empty()) log_warning("{}", text);
  return taken;
}

// Reports a slow job once.
std::string FileWorker::Queue::describe_delay() {
  const double seconds = running_since_ > 0 ? monotonic_seconds() - running_since_ : 0;
  if (seconds < options_.slow_seconds || std::exchange(slow_reported_, true)) return {};
  return fmt::format("{}: no answer from the disk for {:.0f} s; metrics and events are kept in memory until it answers",
                     options_.directory, seconds);
}

// Reports the end of a job that was reported as slow, or during which others were dropped.
std::string FileWorker::Queue::describe_recovery() {
  if (!slow_reported_ && !drops_reported_) return {};
  std::string text = fmt::format("{}: the disk answers again after {:.0f} s", options_.directory,
                                 monotonic_seconds() - running_since_);
  if (const int64_t dropped = dropped_ - std::exchange(dropped_before_, dropped_)) {
    text += fmt::format("; {} rows and events were dropped", dropped);
  }
  slow_reported_ = drops_reported_ = false;
  return text;
}

void FileWorker::Queue::run(FileJob& job) {
  {
    std::lock_guard lock(mutex_);
    --waiting_;
    running_since_ = monotonic_seconds();
  }
  run_or_log(job);
  job.run = nullptr;  // frees what it owns before its bytes count as free
  std::string text;
  {
    std::lock_guard lock(mutex_);
    bytes_ -= job.bytes;
    text = describe_recovery();
    running_since_ = 0;
  }
  if (!text.empty()) log_warning("{}", text);
}

int64_t FileWorker::Queue::dropped() const {
  std::lock_guard lock(mutex_);
  return dropped_;
}

void FileWorker::Queue::report_total() const {
  const int64_t count = dropped();
  if (count > 0) log_warning("{}: {} rows and events were dropped in all", options_.directory, count);
}

std::string FileWorker::Queue::describe_rest() const {
  std::lock_guard lock(mutex_);
  return fmt::format("{}: the disk does not answer; {} rows and events are not written", options_.directory,
                     waiting_ + 1 + static_cast<size_t>(dropped_));
}

FileWorker::FileWorker(FileWorkerOptions options) : queue_(std::make_shared<Queue>(std::move(options))) {}

FileWorker::~FileWorker() {
  if (!thread_ || thread_->wait_idle(FileThread::patience(kLastSeconds))) return;
  log_error("{}", queue_->describe_rest());
}

bool FileWorker::post(FileJob job) {
  if (!queue_->admit(job)) return false;
  if (!thread_) thread_.emplace("files");
  thread_->post([queue = queue_, job = std::move(job)]() mutable { queue->run(job); });
  return true;
}

bool FileWorker::finish(double seconds) {
  if (thread_ && !thread_->wait_idle(seconds)) return false;
  queue_->report_total();
  return true;
}

int64_t FileWorker::dropped() const { return queue_->dropped(); }

}  // namespace lockstep
