// Batches for one rank, prepared ahead by worker threads; their order and content do not depend on timing.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/data/image/augment.h"
#include "lockstep/data/image/decode.h"
#include "lockstep/data/sampler.h"
#include "lockstep/data/source/data_source.h"

namespace lockstep {

// Memory of a batch slot, at least 64-byte aligned, with its deleter.
using HostMemory = std::unique_ptr<std::byte[], std::function<void(std::byte*)>>;
using HostAllocator = std::function<HostMemory(size_t bytes)>;
HostMemory allocate_aligned(size_t bytes);

struct LoaderOptions {
  bool training = true;
  int rank = 0;
  int world_size = 1;
  int64_t batch_size = 1;  // samples of one call on this rank
  int64_t accumulate = 1;  // calls of one training step
  int64_t image_size = 0;  // 0: samples are sparse
  int64_t max_ids = 0;     // sparse: the most that a sample may have
  int64_t vocabulary = 0;  // sparse: ids are below this
  Augment augment = Augment::none;
  Normalize normalize = Normalize::inception;
  bool transform_input = false;
  bool pixels = false;             // a device does its part of the work (Transform::device_part); images are bytes
  bool jpeg_scaling = false;       // training: decode JPEGs at a smaller size if the crop is several times the input
  bool apply_orientation = false;  // turn JPEGs as their EXIF block says
  int64_t max_pixels = kUsualMaxPixels;  // of a picture
  uint64_t seed = 1;
  bool shuffle = true;
  int64_t shuffle_block = 0;
  int64_t start_position = 0;  // training: samples that all ranks together have consumed before the first call
  BadRecords bad_records = BadRecords::fail;
  int workers = 1;      // threads
  int queue_depth = 3;  // batch slots, the one in use included; at least 2
  HostAllocator allocate = allocate_aligned;
};

// A view of one batch. N = size. Valid until Loader::release() or the next Loader::next().
struct Batch {
  const float* images = nullptr;          // [N,3,S,S]; null if samples are sparse, or if the next two replace it
  const uint8_t* pixels = nullptr;        // [N,S,S,3], if LoaderOptions::pixels is set
  const ImageChanges* changes = nullptr;  // [N]
  const int32_t* ids = nullptr;           // [N,max_ids], sparse only, like the next: -1 after the last of a sample
  const float* values = nullptr;          // [N,max_ids]
  const int32_t* labels = nullptr;        // [N]
  const float* weights = nullptr;         // [N]: 1, or 0 for padding
  const int64_t* indices = nullptr;       // [N], in the data set; -1 for padding
  int64_t size = 0;
  int64_t first_position = 0;  // training: in the global stream; evaluation: in the data set
  int64_t epoch = 0;           // of the first sample; evaluation: the number of the pass
  int64_t call = 0;            // 0, 1, ...
};

// A bad record found under BadRecords::skip.
struct BadRecordNote {
  int64_t index = 0;    // in the data set
  std::string message;  // its position and what is wrong
  int64_t times = 0;    // how often it was found
};

class SamplePipeline;
struct SamplePlace;

// Training: with B = world_size * batch_size * accumulate, call k = (step, micro) delivers the stream's positions from
// start_position + step * B + rank * B / world_size + micro * batch_size on; there is no end. A bad record that is to
// be skipped is replaced by the next good one of the data set.
// Evaluation: call k covers positions k * world_size * batch_size + rank * batch_size on, each position being that
// sample of the data set; past the end, and for skipped bad records, there are zeros with weight 0. After
// evaluation_steps() calls the next pass begins, so one loader serves all evaluations of a run.
//
// Owned by the trainer; `source` must outlive it. next() and release() belong to one thread. An error of a worker is
// thrown by the next() for its batch (of several errors, that of the lowest sample) and by every later call.
class Loader {
 public:
  Loader(const DataSource& source, LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Blocks until the batch is complete. Returns the slot of the previous batch to the workers.
  Batch next();

  // Returns the slot before the next call. `batch` must be the last one next() returned.
  void release(const Batch& batch);

  const LoaderOptions& options() const { return options_; }

  // Returns the number of complete batches that are available; 0 means that the input is the bottleneck. Thread-safe.
  int64_t queue_depth() const;

  // Returns the bad records skipped so far, by index. Thread-safe.
  std::vector<BadRecordNote> bad_records() const;

 private:
  struct Slot {
    HostMemory memory;
    float* images = nullptr;
    uint8_t* pixels = nullptr;
    ImageChanges* changes = nullptr;
    int32_t* ids = nullptr;
    float* values = nullptr;
    int32_t* labels = nullptr;
    float* weights = nullptr;
    std::vector<int64_t> indices;
    int64_t call = -1;
    int64_t pending = 0;  // samples not finished yet
    std::exception_ptr error;
    int64_t error_sample = 0;
  };
  struct Task {
    Slot* slot = nullptr;
    int64_t call = 0;
    int64_t begin = 0;  // samples [begin, end) of the batch
    int64_t end = 0;
  };

  void make_slots();
  void start_worker();
  void work(const std::stop_token& stop);
  bool take_task(const std::stop_token& stop, Task& task);
  void finish_task(const Task& task, std::exception_ptr error, int64_t error_sample);
  int64_t position(int64_t call, int64_t sample) const;
  SamplePlace place_of(const Slot& slot, int64_t sample) const;
  bool ready(int64_t call) const;
  int64_t steps_of_pass() const;

  const LoaderOptions options_;
  const int64_t data_size_;
  const Sampler sampler_;
  const std::unique_ptr<SamplePipeline> pipeline_;
  int64_t task_samples_ = 1;
  std::vector<Slot> slots_;

  mutable std::mutex mutex_;
  std::condition_variable_any slot_free_;
  std::condition_variable batch_ready_;
  int64_t issue_call_ = 0;  // the next sample to hand to a worker
  int64_t issue_sample_ = 0;
  int64_t taken_ = 0;                  // batches that next() has returned
  int64_t released_ = 0;               // batches whose slot is free again
  std::vector<std::jthread> workers_;  // last: they stop before anything they use is destroyed
};

// Returns the number of calls of one evaluation pass on every rank: ceil(samples / (world_size * batch_size)).
int64_t evaluation_steps(int64_t samples, int world_size, int64_t batch_size);

}  // namespace lockstep
