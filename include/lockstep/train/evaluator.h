// Evaluation: every validation sample counts once, for any number of ranks and any batch size; nothing is changed.
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

// Collective; owned by main, which keeps all parts alive. Used by the thread that runs the step.
class Evaluator {
 public:
  Evaluator(const EvaluatorParts& parts, int loader_threads);

  // One pass over the data, each batch read once and run with each of `weights`. The same results on every rank. When
  // `stop` says so on any rank, all leave at the same batch, within about a second, and there are no results.
  std::vector<EvaluationResult> run(std::span<const Weights> weights, const std::function<bool()>& stop = {});

  // What this rank has skipped so far, by record.
  std::vector<BadRecordNote> bad_records() const { return loader_.bad_records(); }
  // What could not be read of the data's files when they were opened.
  DataSource::LeftOut left_out() const { return parts_.data.left_out(); }

 private:
  bool all_go_on(int64_t step, const std::function<bool()>& stop);

  EvaluatorParts parts_;
  Loader loader_;
  BatchUpload upload_;
  int64_t steps_;
  double wait_seconds_;
  int64_t next_question_ = 0;  // the batch before which the ranks agree again whether to go on
  int64_t last_question_ = 0;
  double asked_at_ = 0;
};

}  // namespace lockstep
