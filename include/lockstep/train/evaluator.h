// Evaluation. Every validation sample counts exactly once, for any number of ranks and any batch size. The state of the
// model does not change.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/data/loader.h"
#include "lockstep/observe/evaluation_result.h"
#include "lockstep/train/batch_upload.h"
#include "lockstep/train/rank_context.h"

namespace lockstep {

// All ranks make the same calls. Owned by main, like the data. Used by the thread that runs the step.
class Evaluator {
 public:
  Evaluator(const RankContext& rank, const DataSource& data);

  // The outputs of one batch of this rank, logits [N,classes]. Samples with weight 0 do not count.
  using BatchSink = std::function<void(Weights weights, const Batch& batch, std::span<const float> logits)>;

  // Collective. Makes one pass over the data: each batch is read once and evaluated with each of `weights`. Returns the
  // same results on every rank. If `stop` returns true on any rank, all ranks stop at the same batch within about a
  // second, and the result is empty. All ranks call `on_batch` equally often, so it may be collective; in the order of
  // batches, then of ranks, then of samples in a batch, samples are in the order of the data.
  std::vector<EvaluationResult> run(std::span<const Weights> weights, const std::function<bool()>& stop = {},
                                    const BatchSink& on_batch = {});

  // Explains a large loss early in a run with batch normalization, where it may be in the millions: once, on rank 0.
  void explain_large_loss(const EvaluationResult& result);

  // Returns the records that this rank has skipped so far.
  std::vector<BadRecordNote> bad_records() const { return loader_.bad_records(); }
  // Returns which parts of the data files could not be read when they were opened.
  DataSource::LeftOut left_out() const { return data_.left_out(); }

 private:
  bool all_go_on(int64_t step, const std::function<bool()>& stop);

  const RankContext rank_;
  const DataSource& data_;
  Loader loader_;
  BatchUpload upload_;
  int64_t steps_;
  int64_t next_question_ = 0;  // the batch before which the ranks agree again whether to continue
  int64_t last_question_ = 0;
  double asked_at_ = 0;
  bool loss_explained_ = false;
};

}  // namespace lockstep
