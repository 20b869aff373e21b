// The all-reduce of a step: passes each bucket of the gradient arena to the communicator as soon as the backward pass
// has finished it, so that communication overlaps with the backward pass of earlier layers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/comm/transport/bucket_plan.h"
#include "lockstep/comm/transport/communicator.h"

namespace lockstep {

// The whole gradient arena, in the element type of the run.
using GradientArena = std::variant<std::span<float>, std::span<double>>;

// Sends the first `elements` of a float arena as 16-bit floats of `type`. The elements after them are sent as float32.
struct WireFormat {
  const Backend& backend;  // the backend that allocated the arena
  DType type = DType::bf16;
  int64_t elements = 0;
};

// Owned by the trainer; the communicator and the arena must outlive it. Only the thread that runs the step may call it.
// A bucket's memory must not be accessed between its start and wait().
//
//   reducer.begin_step(step);
//   executable.backward(stream, arenas, [&](int32_t position) { reducer.ready_up_to(stream, position); });
//   ... write the batch-norm moments and the step header after the gradients ...
//   reducer.last_ready(stream);
//   exposed = reducer.wait(stream);
class GradientReducer {
 public:
  // Enqueues work on the stream that must precede the all-reduce of a bucket, as the last change of the bucket on this
  // rank.
  using BeforeReduce = std::function<void(Stream& stream, size_t bucket)>;

  // The buckets (from plan_buckets()) must cover the arena without gaps.
  GradientReducer(Communicator& communicator, GradientArena arena, std::vector<Bucket> buckets,
                  BeforeReduce before_reduce = {}, const std::optional<WireFormat>& wire = {});

  // Starts a step; wait() must have returned for the previous one. `step` appears in messages.
  void begin_step(int64_t step);
  // Reverts begin_step(). Allowed only if nothing of the step has been enqueued, because its capture failed.
  void abandon_step();
  // Starts the all-reduce of one bucket. In each step, all buckets must be started exactly once and in order, so that
  // all ranks make the same calls.
  void bucket_ready(Stream& stream, size_t bucket);
  // Starts all buckets that are final after this schedule position and not started yet.
  void ready_up_to(Stream& stream, int64_t position);
  void last_ready(Stream& stream) { bucket_ready(stream, buckets_.size() - 1); }
  // Waits for all buckets, which must have been started: work that is enqueued on the stream afterwards sees the sums.
  // Returns the seconds for which computation had to wait. Throws what the communicator throws.
  double wait(Stream& stream);

  std::span<const Bucket> buckets() const { return buckets_; }
  // The monotonic_seconds() at which each bucket of the step was started. On a backend whose streams run synchronously,
  // its gradients were complete at that time.
  std::span<const double> ready_times() const { return std::span(ready_times_).first(started_); }

 private:
  // The 16-bit copy of the gradients, with the kernels that convert to it and back.
  struct HalfCopy {
    DType type;
    int64_t elements;
    Buffer memory;
    std::vector<std::unique_ptr<Kernel>> to_half;  // by bucket; null if it holds no gradients
    std::unique_ptr<Kernel> to_float;              // converts the whole copy
  };
  int64_t all_reduce_half(Stream& stream, size_t bucket, const std::string& label);
  int64_t all_reduce_rounded(Stream& stream, size_t bucket, const std::string& label);

  Communicator& communicator_;
  const GradientArena arena_;
  const std::vector<Bucket> buckets_;
  const BeforeReduce before_reduce_;
  std::optional<HalfCopy> half_copy_;  // present if gradients are sent as 16-bit floats that this class makes
  // The first elements of the arena, which the communicator rounds to `type`.
  struct Rounded {
    DType type = DType::f32;
    int64_t elements = 0;
  } rounded_;
  int64_t step_ = 0;
  size_t started_ = 0;               // number of buckets started in this step
  std::vector<double> ready_times_;  // by bucket
  bool open_ = false;                // between begin_step() and wait()
};

}  // namespace lockstep
