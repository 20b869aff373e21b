// Adds up the gradients of several micro-batches before one all-reduce (train.accumulate).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/model_state.h"
#include "lockstep/comm/transport/bucket_plan.h"

namespace lockstep {

// Sums the whole gradient arena: gradients, batch-norm moments and the step header. add() adds all micro-batches except
// the last to a separate buffer. The last one stays in the arena, and complete() adds the sum of the others to each
// bucket just before its all-reduce, so that communication still overlaps with computation.
//
// Owned by the trainer; the backend and the state must outlive it. Used by the thread that runs the step.
class GradientAccumulator {
 public:
  // With one micro-batch per step there is nothing to do, and nothing is allocated.
  GradientAccumulator(const Backend& backend, const ModelState& state, int64_t micro_batches,
                      std::span<const Bucket> buckets);

  bool active() const { return !into_arena_.empty(); }
  // Adds the arena to the sum. `micro` counts from 0; micro-batch 0 starts a new sum.
  void add(Stream& stream, int64_t micro);
  // Adds the sum to one bucket of the last micro-batch in the arena.
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
