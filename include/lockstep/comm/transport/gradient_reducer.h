// The allreduce of a step: hands each bucket of the gradient arena to the communicator as soon as backward has
// finished it, so that sums travel while earlier layers still compute.
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

// Gradients of 16 bits on the wire: the first `elements` of a float arena. What lies behind them travels as it is.
struct WireFormat {
  const Backend& backend;  // of the arena
  DType type = DType::bf16;
  int64_t elements = 0;
};

// Owned by the trainer; communicator and arena must outlive it. Used by the thread that runs the step, which must
// leave a bucket's memory alone from its start to wait().
//
//   reducer.begin_step(step);
//   executable.backward(stream, arenas, [&](int32_t position) { reducer.ready_up_to(stream, position); });
//   ... write moments and header behind the gradients ...
//   reducer.last_ready(stream);
//   exposed = reducer.wait(stream);
class GradientReducer {
 public:
  // Enqueued on the stream before a bucket is summed: the bucket's last change on this rank.
  using BeforeSum = std::function<void(Stream& stream, size_t bucket)>;

  // The buckets (plan_buckets) must cover the arena without a gap.
  GradientReducer(Communicator& communicator, GradientArena arena, std::vector<Bucket> buckets,
                  BeforeSum before_sum = {}, const std::optional<WireFormat>& wire = {});

  // `step` is for messages. The step before must have been joined.
  void begin_step(int64_t step);
  // Takes begin_step() back, where nothing of the step has been enqueued: its capture has failed.
  void abandon_step();
  // Starts one bucket; all buckets must be started once a step, in order, so that ranks agree on it.
  void bucket_ready(Stream& stream, size_t bucket);
  // Starts all buckets that are final after this schedule position and not started yet.
  void ready_up_to(Stream& stream, int64_t position);
  void last_ready(Stream& stream) { bucket_ready(stream, buckets_.size() - 1); }
  // Later work on the stream sees all sums. Every bucket must have been started. Returns the seconds that computing
  // had to wait; throws what the communicator throws.
  double wait(Stream& stream);

  std::span<const Bucket> buckets() const { return buckets_; }
  // monotonic_seconds() at which each bucket of the step was handed over: complete, where streams are not deferred.
  std::span<const double> ready_times() const { return std::span(ready_times_).first(started_); }

 private:
  // The narrow copy of the gradients, and what makes it and takes it back.
  struct Narrow {
    DType type;
    int64_t elements;
    Buffer memory;
    std::vector<std::unique_ptr<Kernel>> narrow;  // by bucket; null: it holds no gradients
    std::unique_ptr<Kernel> widen;
  };
  int64_t sum_narrow(Stream& stream, size_t bucket, const std::string& label);

  Communicator& communicator_;
  const GradientArena arena_;
  const std::vector<Bucket> buckets_;
  const BeforeSum before_sum_;
  std::optional<Narrow> narrow_;
  int64_t step_ = 0;
  size_t started_ = 0;               // buckets of this step
  std::vector<double> ready_times_;  // of those
  bool open_ = false;                // between begin_step and join
};

}  // namespace lockstep
