#include "lockstep/checkpoint/writer.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/base/trace.h"
#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

// Copies the values and returns whether all of them are finite. It works in blocks that stay in the first-level cache.
bool copy_finite(std::span<const float> from, float* to) {
  constexpr size_t kBlock = 2048;
  bool finite = true;
  for (size_t done = 0; done < from.size(); done += kBlock) {
    const std::span<const float> block = from.subspan(done, std::min(kBlock, from.size() - done));
    std::copy(block.begin(), block.end(), to + done);
    for (const float value : block) finite &= std::isfinite(value);
  }
  return finite;
}

std::span<const float> values_of(const CheckpointArray& array) { return std::span(array.data, array.shape.elements()); }

[[noreturn]] void fail_not_finite(const CheckpointArray& array, int64_t step) {
  const std::span<const float> values = values_of(array);
  const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  fail(ExitCode::numerics, "step {}: {} holds {} at element {}; nothing was saved, the checkpoints before are intact",
       step, array.path, *bad, bad - values.begin());
}

// Copies the arrays and lets `contents` refer to the copies.
void copy_arrays(CheckpointContents& contents, std::vector<float>& staging) {
  const TraceScope span("copy");
  size_t total = 0;
  for (const CheckpointArray& array : contents.arrays) total += values_of(array).size();
  staging.resize(total);
  float* to = staging.data();
  for (CheckpointArray& array : contents.arrays) {
    const std::span<const float> values = values_of(array);
    if (!copy_finite(values, to)) fail_not_finite(array, contents.meta.step);
    array.data = to;
    to += values.size();
  }
}

// Some file systems have no symbolic links. That is reported once, because the checkpoints are complete without them.
void point_link(const std::string& directory, const char* link, int64_t step, bool& links_fail) {
  try {
    point_at_checkpoint(directory, link, step);
    links_fail = false;
  } catch (const std::exception& error) {
    if (std::exchange(links_fail, true)) return;
    log_warning(
        "{}; without the links latest and best the newest checkpoint is that of the highest step, and each names the "
        "best one (/training/best_step)",
        error.what());
  }
}

void publish(const std::string& directory, const CheckpointContents& contents, SaveResult& result, bool& links_fail) {
  if (!path_exists(directory)) {
    log_warning("{}: was deleted or moved during the run; it is made again", directory);
    make_directories(directory, ExitCode::checkpoint);
  }
  {
    const Hdf5Image image = build_checkpoint(contents, result.path);
    result.bytes = image.bytes().size();
    write_file_atomically(result.path, image.bytes(), {.blame = ExitCode::checkpoint, .verify = true});
  }
  point_link(directory, "latest", result.step, links_fail);
}

// An error only causes a warning, because the checkpoint has been published.
void delete_older(const std::string& directory, const Retention& retention) {
  try {
    apply_retention(directory, retention);
  } catch (const std::exception& error) {
    log_warning("{}: older checkpoints are not deleted: {}", directory, error.what());
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(WriterOptions options) : options_(std::move(options)) {
  make_directories(options_.directory, ExitCode::checkpoint);
  remove_stale_temporaries(options_.directory);
}

CheckpointWriter::~CheckpointWriter() {
  if (!wait_idle(options_.give_up_seconds)) {
    log_error("{}/{}: given up after {:.0f} s; the disk does not answer", options_.directory, checkpoint_name(step_),
              monotonic_seconds() - started_at_);
  } else if (const auto result = poll(); result && result->error) {
    log_error("{}", result->error->what());
  }
}

void CheckpointWriter::begin(int64_t step) {
  step_ = step;
  started_at_ = monotonic_seconds();
  slow_reported_ = false;
}

void CheckpointWriter::start(CheckpointContents contents, int64_t best_step) {
  require(!busy(), "a save of step {} before that of step {} has ended", contents.meta.step, step_);
  begin(contents.meta.step);
  waited_seconds_ = 0;
  const auto copied = std::make_shared<std::promise<void>>();  // broken, and so ready, if copying fails
  const auto done = std::make_shared<std::promise<SaveResult>>();
  copied_ = copied->get_future();
  result_ = done->get_future();
  thread_.post(
      [copied, done, best_step, contents = std::move(contents), options = options_, memory = memory_]() mutable {
        const TraceScope span("save");
        const double cpu_start = thread_cpu_seconds();
        const int64_t step = contents.meta.step;
        SaveResult result{.step = step, .path = options.directory + "/" + checkpoint_name(step)};
        try {
          copy_arrays(contents, memory->staging);
          const double copied_at = monotonic_seconds();
          copied->set_value();
          publish(options.directory, contents, result, memory->links_fail);
          result.write_seconds = monotonic_seconds() - copied_at;
          result.cpu_seconds = thread_cpu_seconds() - cpu_start;
          if (best_step == step) point_link(options.directory, "best", step, memory->links_fail);
          delete_older(options.directory, {.keep = options.keep, .step = step, .best_step = best_step});
        } catch (const Error& error) {
          result.error = error;
        } catch (const std::bad_alloc&) {
          result.error.emplace(ExitCode::checkpoint,
                               fmt::format("{}: not enough memory to build the checkpoint", result.path));
        } catch (const std::exception& error) {
          result.error.emplace(ExitCode::checkpoint, fmt::format("{}: {}", result.path, error.what()));
        }
        done->set_value(std::move(result));
      });
}

void CheckpointWriter::mark_best(int64_t step) {
  if (!busy()) begin(step);
  thread_.post([step, options = options_, memory = memory_] {
    if (!path_exists(options.directory + "/" + checkpoint_name(step))) return;
    point_link(options.directory, "best", step, memory->links_fail);
    delete_older(options.directory, {.keep = options.keep, .step = step, .best_step = step});
  });
}

void CheckpointWriter::wait_copied() {
  if (!copied_.valid()) return;
  const double before = monotonic_seconds();
  copied_.wait();
  copied_ = {};
  waited_seconds_ = monotonic_seconds() - before;
}

std::optional<SaveResult> CheckpointWriter::poll() {
  if (!wait_idle(0) || !result_.valid()) return std::nullopt;
  SaveResult result = result_.get();
  result.snapshot_seconds = waited_seconds_;
  return result;
}

bool CheckpointWriter::wait_idle(double seconds) {
  constexpr double kLook = 0.5;  // time between checks of the clock for the warning
  for (const double end = monotonic_seconds() + seconds;;) {
    const double left = end - monotonic_seconds();
    if (thread_.wait_idle(std::clamp(left, 0.0, kLook))) return true;
    if (const double so_far = monotonic_seconds() - started_at_; so_far >= options_.slow_seconds && !slow_reported_) {
      slow_reported_ = true;
      log_warning("checkpoint step {} still writing after {:.0f} s, path {}/{}", step_, so_far, options_.directory,
                  checkpoint_name(step_));
    }
    if (left <= 0) return false;
  }
}

void warn_if_space_is_short(const std::string& directory, int64_t checkpoint_bytes) {
  const int64_t free = free_bytes(directory);
  if (free < 0 || free >= 2 * checkpoint_bytes) return;
  log_warning("{}: {} bytes free, but two checkpoints take {}; saving will fail when the disk is full", directory, free,
              2 * checkpoint_bytes);
}

}  // namespace lockstep
