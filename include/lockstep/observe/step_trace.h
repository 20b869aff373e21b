// The steps and their parts as spans; and log.trace_steps: what every thread of every rank did in a few steps, as a
// file for Perfetto or chrome://tracing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/trace.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/io/file_worker.h"
#include "lockstep/observe/step_timer.h"

namespace lockstep {

struct StepTraceOptions {
  std::string path;   // of rank 0's file
  int64_t steps = 0;  // 0: no trace
  double wait_seconds = 600;
};

// One a rank, used by the thread that runs the step. The first two steps of a run, in which libraries set themselves
// up, are left out of the file. On a backend that only enqueues, the spans of kernels are those of the host.
class StepTrace {
 public:
  // Rank 0's file is written by `files`.
  StepTrace(ProcessGroup& group, FileWorker& files, StepTraceOptions options)
      : group_(group), files_(files), options_(std::move(options)) {}

  // A step begins with reading its data. Spans that begin in a part end in it.
  void begin_step(int64_t step);
  void enter(StepPart part);
  void end_step();

  // Whether all steps are traced and write() is due.
  bool complete() const { return begun_ > 0 && traced_ == options_.steps; }
  // Collective. Writes what there is, once; nothing when no step was traced.
  void write();

 private:
  void start_if_due();

  ProcessGroup& group_;
  FileWorker& files_;
  StepTraceOptions options_;
  int64_t seen_ = 0, traced_ = 0;  // steps
  double begun_ = 0;               // when tracing began; 0: not now
  std::string step_name_;
  StepPart part_ = StepPart::data;
  std::optional<TraceScope> step_span_, part_span_;  // of the step under way, where somebody looks
};

}  // namespace lockstep
