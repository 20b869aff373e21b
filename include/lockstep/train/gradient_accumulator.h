// Gradients of several micro-batches added up before one reduction (train.accumulate).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/model_state.h"
#include "lockstep/comm/transport/bucket_plan.h"

namespace lockstep {

// Sums the whole gradient arena: gradients, batch-norm moments and the step header. The micro-batches but the last go
// to memory of its own by add(); the last one stays in the arena, and each bucket gets the sum of the others just
// before it is reduced, so that reducing still overlaps with computing.
//
// Owned by the trainer; backend and state must outlive it. Used by the thread that runs the step.
class GradientAccumulator {
 public:
  // `micro_batches` of a step; with one there is nothing to do and nothing is allocated.
  GradientAccumulator(const Backend& backend, const ModelState& state, int64_t micro_batches,
                      std::span<const Bucket> buckets);

  bool active() const { return !into_arena_.empty(); }
  // Adds what the arena holds; `micro` counts from 0, the first one of a step starting the sum anew.
  void add(Stream& stream, int64_t micro);
  // Adds the sum to the last micro-batch's bucket in the arena.
  void complete(Stream& stream, size_t bucket) const;

 private:
  const Backend& backend_;
  const ModelState& state_;
  std::vector<Bucket> buckets_;
  Buffer sums_;
  std::unique_ptr<Kernel> into_sums_;
  std::vector<std::unique_ptr<Kernel>> into_arena_;  // by bucket
};

}  // namespace lockstep
