#include "lockstep/checkpoint/writer.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace.h"
#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

constexpr uint32_t kExponent = 0x7F800000;

bool is_finite(float value) { return (std::bit_cast<uint32_t>(value) & kExponent) != kExponent; }

// Copies and tells whether all values are finite. One pass in blocks that stay in the first-level cache.
bool copy_finite(std::span<const float> from, float* to) {
  constexpr size_t kBlock = 2048;
  uint32_t bad = 0;
  for (size_t done = 0; done < from.size(); done += kBlock) {
    const std::span<const float> block = from.subspan(done, std::min(kBlock, from.size() - done));
    std::copy(block.begin(), block.end(), to + done);
    for (const float value : block) bad |= static_cast<uint32_t>(!is_finite(value));
  }
  return bad == 0;
}

[[noreturn]] void fail_not_finite(const CheckpointArray& array, int64_t step) {
  const std::span values(array.data, static_cast<size_t>(array.shape.elements()));
  const auto bad = std::find_if_not(values.begin(), values.end(), is_finite);
  fail(ExitCode::numerics, "step {}: {} holds {} at element {}; nothing was saved, the checkpoints before are intact",
       step, array.path, *bad, bad - values.begin());
}

}  // namespace

// Owned by the writer and by its thread, whichever ends last.
class CheckpointWriter::Worker {
 public:
  explicit Worker(WriterOptions options)
      : options_(std::move(options)), best_step_(options_.best_step), last_saved_step_(options_.last_saved_step) {}

  Start start(CheckpointContents contents, bool best);
  double wait_copied();
  std::optional<SaveResult> poll();
  void returned_to(int64_t step);
  bool wait_idle(double seconds);
  // Asks run() to return; false: it is still at work after give_up_seconds.
  bool stop();
  void run();

 private:
  enum class Phase { idle, copying, writing, linking };

  SaveResult save();
  void copy_sources();
  void make_directory_again() const;
  void publish(SaveResult& result);
  void tidy_up(int64_t step) const;
  void mark_best(int64_t step);
  void point(const std::string& link, int64_t step);
  void warn_if_slow();

  const WriterOptions options_;
  std::vector<float> staging_;  // this and the next two: of the writer's thread
  int64_t best_step_;
  bool links_fail_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::idle;
  bool stop_ = false;
  CheckpointContents contents_;  // of the save in flight; the writer's thread alone changes it after start()
  bool best_ = false;            // asked for, not yet done
  double started_at_ = 0;
  bool slow_reported_ = false;
  std::deque<SaveResult> results_;
  int64_t last_saved_step_;
};

CheckpointWriter::CheckpointWriter(WriterOptions options)
    : worker_(make_worker(std::move(options))), thread_("writer", [worker = worker_] { worker->run(); }) {}

std::shared_ptr<CheckpointWriter::Worker> CheckpointWriter::make_worker(WriterOptions options) {
  make_directories(options.directory, ExitCode::checkpoint);
  remove_stale_temporaries(options.directory);
  return std::make_shared<Worker>(std::move(options));
}

CheckpointWriter::~CheckpointWriter() {
  constexpr double kReturnSeconds = 5;
  thread_.join_within(worker_->stop() ? kReturnSeconds : 0);
}

CheckpointWriter::Start CheckpointWriter::start(CheckpointContents contents, bool best) {
  return worker_->start(std::move(contents), best);
}
double CheckpointWriter::wait_copied() { return worker_->wait_copied(); }
std::optional<SaveResult> CheckpointWriter::poll() { return worker_->poll(); }
void CheckpointWriter::returned_to(int64_t step) { worker_->returned_to(step); }
bool CheckpointWriter::wait_idle(double seconds) { return worker_->wait_idle(seconds); }

bool CheckpointWriter::Worker::stop() {
  const bool idle = wait_idle(options_.give_up_seconds);
  std::lock_guard lock(mutex_);
  stop_ = true;
  changed_.notify_all();
  for (const SaveResult& result : results_) {
    if (result.error) log_error("{}", result.error->what());
  }
  if (!idle) {
    log_error("{}/{}: given up after {:.0f} s; the disk does not answer", options_.directory,
              checkpoint_name(contents_.meta.step), monotonic_seconds() - started_at_);
  }
  return idle;
}

CheckpointWriter::Start CheckpointWriter::Worker::start(CheckpointContents contents, bool best) {
  std::lock_guard lock(mutex_);
  const int64_t step = contents.meta.step;
  if (phase_ != Phase::idle) {
    if (step != contents_.meta.step) return Start::busy;
    best_ |= best;
    return Start::already_saved;
  }
  const bool saved = step == last_saved_step_;
  if (saved && !best) return Start::already_saved;
  contents_ = std::move(contents);
  best_ = best;
  started_at_ = monotonic_seconds();
  slow_reported_ = false;
  phase_ = saved ? Phase::linking : Phase::copying;
  changed_.notify_all();
  return saved ? Start::already_saved : Start::started;
}

double CheckpointWriter::Worker::wait_copied() {
  const double before = monotonic_seconds();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return phase_ != Phase::copying; });
  return monotonic_seconds() - before;
}

std::optional<SaveResult> CheckpointWriter::Worker::poll() {
  std::lock_guard lock(mutex_);
  warn_if_slow();
  if (results_.empty()) return std::nullopt;
  SaveResult result = std::move(results_.front());
  results_.pop_front();
  return result;
}

void CheckpointWriter::Worker::returned_to(int64_t step) {
  std::lock_guard lock(mutex_);
  require(phase_ == Phase::idle, "a return to step {} while step {} is being saved", step, contents_.meta.step);
  last_saved_step_ = step;
}

bool CheckpointWriter::Worker::wait_idle(double seconds) {
  constexpr double kLook = 0.5;  // between looks at the slow warning
  const double end = monotonic_seconds() + seconds;
  std::unique_lock lock(mutex_);
  while (phase_ != Phase::idle) {
    const double left = end - monotonic_seconds();
    if (left <= 0) return false;
    changed_.wait_for(lock, std::chrono::duration<double>(std::min(left, kLook)));
    warn_if_slow();
  }
  return true;
}

void CheckpointWriter::Worker::warn_if_slow() {
  const double seconds = monotonic_seconds() - started_at_;
  if (phase_ == Phase::idle || slow_reported_ || seconds < options_.slow_seconds) return;
  slow_reported_ = true;
  log_warning("checkpoint step {} still writing after {:.0f} s, path {}/{}", contents_.meta.step, seconds,
              options_.directory, checkpoint_name(contents_.meta.step));
}

void CheckpointWriter::Worker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stop_ || phase_ != Phase::idle; });
    if (phase_ == Phase::idle) return;
    const int64_t step = contents_.meta.step;
    std::optional<SaveResult> result;
    if (phase_ == Phase::copying) {
      lock.unlock();
      result = save();
      lock.lock();
      if (!result->error) last_saved_step_ = step;
    }
    const bool published = last_saved_step_ == step;
    for (bool tidy = false; published && (best_ || !tidy);) {  // it may be asked for while this goes on
      const bool best = std::exchange(best_, false);
      lock.unlock();
      if (best) mark_best(step);
      tidy_up(step);  // last, since the former best need not be kept
      lock.lock();
      tidy = true;
    }
    best_ = false;
    if (result) results_.push_back(std::move(*result));  // not before: the caller may start the next save at once
    phase_ = Phase::idle;
    changed_.notify_all();
  }
}

SaveResult CheckpointWriter::Worker::save() {
  const TraceScope span("save");
  const double start = monotonic_seconds(), cpu_start = thread_cpu_seconds();
  SaveResult result{.step = contents_.meta.step,
                    .path = options_.directory + "/" + checkpoint_name(contents_.meta.step)};
  try {
    {
      const TraceScope copying("copy");
      copy_sources();
    }
    result.snapshot_seconds = monotonic_seconds() - start;
    {
      std::lock_guard lock(mutex_);
      phase_ = Phase::writing;
    }
    changed_.notify_all();
    publish(result);
    result.write_seconds = monotonic_seconds() - start - result.snapshot_seconds;
    result.cpu_seconds = thread_cpu_seconds() - cpu_start;
  } catch (const Error& error) {
    result.error = error;
  } catch (const std::bad_alloc&) {
    result.error.emplace(ExitCode::checkpoint,
                         fmt::format("{}: not enough memory to build the checkpoint", result.path));
  } catch (const std::exception& error) {
    result.error.emplace(ExitCode::checkpoint, fmt::format("{}: {}", result.path, error.what()));
  }
  return result;
}

void CheckpointWriter::Worker::copy_sources() {
  size_t total = 0;
  for (const CheckpointArray& array : contents_.arrays) total += static_cast<size_t>(array.shape.elements());
  staging_.resize(total);
  float* to = staging_.data();
  for (CheckpointArray& array : contents_.arrays) {
    const auto elements = static_cast<size_t>(array.shape.elements());
    if (!copy_finite({array.data, elements}, to)) fail_not_finite(array, contents_.meta.step);
    array.data = to;
    to += elements;
  }
}

void CheckpointWriter::Worker::make_directory_again() const {
  if (path_exists(options_.directory)) return;
  log_warning("{}: was deleted or moved during the run; it is made again", options_.directory);
  make_directories(options_.directory, ExitCode::checkpoint);
}

void CheckpointWriter::Worker::publish(SaveResult& result) {
  make_directory_again();
  {
    const Hdf5Image image = build_checkpoint(contents_, result.path);
    result.bytes = static_cast<int64_t>(image.bytes().size());
    write_file_atomically(result.path, image.bytes(), {.blame = ExitCode::checkpoint, .verify = true});
  }
  point("latest", result.step);
}

// The file is published by now: what goes wrong here does not make it a failed save.
void CheckpointWriter::Worker::tidy_up(int64_t step) const {
  try {
    apply_retention(options_.directory, {.keep = options_.keep, .step = step, .best_step = best_step_});
  } catch (const std::exception& error) {
    log_warning("{}: older checkpoints are not deleted: {}", options_.directory, error.what());
  }
}

void CheckpointWriter::Worker::mark_best(int64_t step) {
  best_step_ = step;
  point("best", step);
}

// The links are a convenience that some file systems lack; the checkpoint itself is published by now.
void CheckpointWriter::Worker::point(const std::string& link, int64_t step) {
  try {
    point_at_checkpoint(options_.directory, link, step);
    links_fail_ = false;
  } catch (const std::exception& error) {
    if (std::exchange(links_fail_, true)) return;
    log_warning(
        "{}; without the links latest and best the newest checkpoint is that of the highest step, and each names the "
        "best one (/training/best_step)",
        error.what());
  }
}

void warn_if_space_is_short(const std::string& directory, int64_t checkpoint_bytes) {
  const int64_t free = free_bytes(directory);
  if (free < 0 || free >= 2 * checkpoint_bytes) return;
  log_warning("{}: {} bytes free, but two checkpoints take {}; saving will fail when the disk is full", directory, free,
              2 * checkpoint_bytes);
}

}  // namespace lockstep
