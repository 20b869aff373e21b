// Evaluation. Every validation sample counts exactly once, for any number of ranks and any batch size. The state of the
// model does not change.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/supervision/watchdog.h"
#include "lockstep/config/config.h"
#include "lockstep/data/loader.h"
#include "lockstep/observe/evaluation_result.h"
#include "lockstep/train/batch_upload.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

struct EvaluatorParts {
  const Config& config;
  const CompiledModel& model;
  const Backend& backend;
  Stream& stream;
  ProcessGroup& group;
  Watchdog& watchdog;
  const DataSource& data;
};

// All ranks make the same calls. Owned by main, which keeps all parts alive. Used by the thread that runs the step.
class Evaluator {
 public:
  Evaluator(const EvaluatorParts& parts, int loader_threads);

  // Collective. Makes one pass over the data: each batch is read once and evaluated with each of `weights`. Returns the
  // same results on every rank. If `stop` returns true on any rank, all ranks stop at the same batch within about a
  // second, and the result is empty.
  std::vector<EvaluationResult> run(std::span<const Weights> weights, const std::function<bool()>& stop = {});

  // Returns the records that this rank has skipped so far.
  std::vector<BadRecordNote> bad_records() const { return loader_.bad_records(); }
  // Returns which parts of the data files could not be read when they were opened.
  DataSource::LeftOut left_out() const { return parts_.data.left_out(); }

 private:
  bool all_go_on(int64_t step, const std::function<bool()>& stop);

  EvaluatorParts parts_;
  Loader loader_;
  BatchUpload upload_;
  int64_t steps_;
  double wait_seconds_;
  int64_t next_question_ = 0;  // the batch before which the ranks agree again whether to continue
  int64_t last_question_ = 0;
  double asked_at_ = 0;
};

}  // namespace lockstep
