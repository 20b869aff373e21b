// The numbers and settings of a run in the forms of TensorBoard and Prometheus.
#pragma once

#include <cstdint>

#include "lockstep/config/config.h"
#include "lockstep/observe/evaluation_result.h"
#include "lockstep/observe/event_file.h"
#include "lockstep/observe/progress_line.h"
#include "lockstep/observe/prometheus.h"

namespace lockstep {

// Returns the settings that affect the training.
Hyperparameters hyperparameters(const Config& config, int ranks);

// Returns the scalars of a log interval; those that are NaN are left out.
EventScalars interval_scalars(const ProgressRow& row);

void set_interval(PrometheusPage& page, const ProgressRow& row);
void set_evaluation(PrometheusPage& page, int64_t step, const EvaluationResult& result);

}  // namespace lockstep
