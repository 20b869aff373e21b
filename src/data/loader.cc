#include "lockstep/data/loader.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <system_error>
#include <utility>

#include "data/sample_pipeline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/thread_name.h"
#include "lockstep/base/trace.h"

namespace lockstep {
namespace {

constexpr size_t kAlignment = 64;
constexpr int64_t kMaxTaskSamples = 16;

size_t round_up(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Returns several samples per task for large batches, but leaves four tasks for every worker.
int64_t choose_task_samples(const LoaderOptions& options) {
  return std::clamp<int64_t>(options.batch_size / (4 * options.workers), 1, kMaxTaskSamples);
}

LoaderOptions checked(LoaderOptions options, int64_t data_size) {
  require(options.rank >= 0 && options.rank < options.world_size, "rank {} of {}", options.rank, options.world_size);
  require(options.batch_size > 0 && options.accumulate > 0, "a batch of {} x {} samples", options.batch_size,
          options.accumulate);
  require(options.image_size > 0 || (options.max_ids > 0 && options.vocabulary > 0),
          "an image size of {}, or samples of {} ids below {}", options.image_size, options.max_ids,
          options.vocabulary);
  require(options.start_position >= 0, "start position {}", options.start_position);
  require(options.workers >= 1 && options.queue_depth >= 2, "{} workers, {} batch slots", options.workers,
          options.queue_depth);
  require(data_size > 0, "a loader over {} samples", data_size);
  return options;
}

}  // namespace

HostMemory allocate_aligned(size_t bytes) {
  void* const memory = std::aligned_alloc(kAlignment, round_up(std::max<size_t>(bytes, 1)));
  if (memory == nullptr) throw std::bad_alloc();
  return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

int64_t evaluation_steps(int64_t samples, int world_size, int64_t batch_size) {
  const int64_t global = world_size * batch_size;
  return (samples + global - 1) / global;
}

Loader::Loader(const DataSource& source, LoaderOptions options)
    : options_(checked(std::move(options), source.size())),
      data_size_(source.size()),
      sampler_({.size = data_size_,
                .seed = options_.seed,
                .shuffle = options_.shuffle,
                .shuffle_block = options_.shuffle_block}),
      pipeline_(std::make_unique<SamplePipeline>(source, options_)),
      task_samples_(choose_task_samples(options_)) {
  make_slots();
  workers_.reserve(static_cast<size_t>(options_.workers));
  for (int i = 0; i < options_.workers; ++i) start_worker();
}

void Loader::start_worker() {
  try {
    workers_.emplace_back([this](const std::stop_token& stop) {
      name_thread("loader");
      work(stop);
    });
  } catch (const std::system_error& error) {
    fail(ExitCode::config,
         "data.workers: only {} of {} threads can be started ({}): lower data.workers, or raise the limit (ulimit -u)",
         workers_.size(), options_.workers, error.code().message());
  }
}

Loader::~Loader() {
  for (std::jthread& worker : workers_) worker.request_stop();  // all are notified before the first is joined
}

void Loader::make_slots() {
  const auto samples = static_cast<size_t>(options_.batch_size);
  const auto side = static_cast<size_t>(options_.image_size);
  const size_t elements = samples * 3 * side * side;
  const size_t image_bytes = options_.pixels ? 0 : round_up(elements * sizeof(float));
  const size_t pixel_bytes = options_.pixels ? round_up(elements) : 0;
  const size_t change_bytes = options_.pixels ? round_up(samples * sizeof(ImageChanges)) : 0;
  const size_t bag_bytes = side > 0 ? 0 : round_up(samples * static_cast<size_t>(options_.max_ids) * sizeof(float));
  const size_t label_bytes = round_up(samples * sizeof(int32_t));
  slots_.resize(static_cast<size_t>(options_.queue_depth));
  const size_t slot_bytes = image_bytes + pixel_bytes + change_bytes + 2 * bag_bytes + 2 * label_bytes;
  for (Slot& slot : slots_) {
    try {
      slot.memory = options_.allocate(slot_bytes);
    } catch (const std::bad_alloc&) {
      fail(ExitCode::config,
           "there is not enough memory for {} batches of {} samples, {} bytes each: lower train.batch_size or "
           "data.prefetch",
           slots_.size(), samples, slot_bytes);
    }
    std::byte* memory = slot.memory.get();
    require(reinterpret_cast<uintptr_t>(memory) % kAlignment == 0, "batch memory that is not 64-byte aligned");
    const auto take = [&]<class T>(T*& array, size_t bytes) {
      if (bytes > 0) array = reinterpret_cast<T*>(memory);
      memory += bytes;
    };
    take(slot.images, image_bytes);
    take(slot.pixels, pixel_bytes);
    take(slot.changes, change_bytes);
    take(slot.ids, bag_bytes);
    take(slot.values, bag_bytes);
    take(slot.labels, label_bytes);
    take(slot.weights, label_bytes);
    slot.indices.resize(samples);
  }
}

// Returns the position of a sample: in training in the global stream, in evaluation in the data set.
int64_t Loader::position(int64_t call, int64_t sample) const {
  const int64_t rank = options_.rank;
  if (!options_.training) {
    return (call % steps_of_pass() * options_.world_size + rank) * options_.batch_size + sample;
  }
  const int64_t step = call / options_.accumulate;
  const int64_t micro = call % options_.accumulate;
  const int64_t rank_samples = options_.batch_size * options_.accumulate;
  return options_.start_position + (step * options_.world_size + rank) * rank_samples + micro * options_.batch_size +
         sample;
}

// Returns the memory in the slot for the input of a sample.
SamplePlace Loader::place_of(const Slot& slot, int64_t sample) const {
  if (slot.ids != nullptr)
    return {.ids = slot.ids + sample * options_.max_ids, .values = slot.values + sample * options_.max_ids};
  const int64_t begin = sample * 3 * options_.image_size * options_.image_size;
  if (slot.pixels != nullptr) return {.pixels = slot.pixels + begin, .changes = slot.changes + sample};
  return {.image = slot.images + begin};
}

int64_t Loader::steps_of_pass() const { return evaluation_steps(data_size_, options_.world_size, options_.batch_size); }

void Loader::work(const std::stop_token& stop) {
  SamplePipeline::Workspace workspace;
  for (Task task; take_task(stop, task);) {
    const TraceScope span("prepare samples");
    Slot& slot = *task.slot;
    std::exception_ptr error;
    int64_t sample = task.begin;
    try {
      for (; sample < task.end && !stop.stop_requested(); ++sample) {
        const auto at = static_cast<size_t>(sample);
        const SamplePlace to = place_of(slot, sample);
        const int64_t stream = position(task.call, sample);
        std::optional<SamplePipeline::Filled> filled;
        if (options_.training) {
          filled = pipeline_->fill(sampler_.at(stream), workspace, to);
        } else if (stream < data_size_) {
          filled = pipeline_->fill({.epoch = 0, .index = stream}, workspace, to);
        }
        if (!filled) pipeline_->clear(to);
        slot.labels[at] = filled ? filled->label : 0;
        slot.weights[at] = filled ? 1.0F : 0.0F;
        slot.indices[at] = filled ? filled->index : -1;
      }
    } catch (...) {
      error = std::current_exception();
    }
    finish_task(task, std::move(error), sample);
  }
}

// Waits for a free slot. Returns false if the loader is being destroyed.
bool Loader::take_task(const std::stop_token& stop, Task& task) {
  std::unique_lock lock(mutex_);
  const auto slots = static_cast<int64_t>(slots_.size());
  slot_free_.wait(lock, stop, [&] { return issue_call_ < released_ + slots; });
  if (stop.stop_requested()) return false;
  Slot& slot = slots_[issue_call_ % slots];
  if (issue_sample_ == 0) {
    slot.call = issue_call_;
    slot.pending = options_.batch_size;
    slot.error = nullptr;
  }
  task = {.slot = &slot,
          .call = issue_call_,
          .begin = issue_sample_,
          .end = std::min(issue_sample_ + task_samples_, options_.batch_size)};
  issue_sample_ = task.end;
  if (issue_sample_ == options_.batch_size) {
    issue_sample_ = 0;
    ++issue_call_;
  }
  return true;
}

void Loader::finish_task(const Task& task, std::exception_ptr error, int64_t error_sample) {
  const std::lock_guard lock(mutex_);
  Slot& slot = *task.slot;
  if (error && (!slot.error || error_sample < slot.error_sample)) {
    slot.error = std::move(error);
    slot.error_sample = error_sample;
  }
  slot.pending -= task.end - task.begin;
  if (slot.pending == 0) batch_ready_.notify_all();
}

bool Loader::ready(int64_t call) const {
  const Slot& slot = slots_[static_cast<size_t>(call) % slots_.size()];
  return slot.call == call && slot.pending == 0;
}

Batch Loader::next() {
  std::unique_lock lock(mutex_);
  if (released_ < taken_) {
    released_ = taken_;
    slot_free_.notify_all();
  }
  batch_ready_.wait(lock, [&] { return ready(taken_); });
  const Slot& slot = slots_[static_cast<size_t>(taken_) % slots_.size()];
  if (slot.error) std::rethrow_exception(slot.error);
  const int64_t call = taken_++;
  const int64_t first = position(call, 0);
  return {.images = slot.images,
          .pixels = slot.pixels,
          .changes = slot.changes,
          .ids = slot.ids,
          .values = slot.values,
          .labels = slot.labels,
          .weights = slot.weights,
          .indices = slot.indices.data(),
          .size = options_.batch_size,
          .first_position = first,
          .epoch = options_.training ? first / data_size_ : call / steps_of_pass(),
          .call = call};
}

void Loader::release(const Batch& batch) {
  const std::lock_guard lock(mutex_);
  require(batch.call == taken_ - 1, "batch {} given back after batch {} was taken", batch.call, taken_ - 1);
  released_ = taken_;
  slot_free_.notify_all();
}

int64_t Loader::queue_depth() const {
  const std::lock_guard lock(mutex_);
  int64_t count = 0;
  while (count < static_cast<int64_t>(slots_.size()) && ready(taken_ + count)) ++count;
  return count;
}

std::vector<BadRecordNote> Loader::bad_records() const { return pipeline_->bad_records(); }

}  // namespace lockstep
