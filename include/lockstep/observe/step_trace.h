// Records steps and their parts as trace spans. With log.trace_steps, writes the spans of all threads of all ranks
// during a few steps to a file for Perfetto or chrome://tracing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/base/trace.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/io/file_worker.h"
#include "lockstep/observe/step_profile.h"
#include "lockstep/observe/step_timer.h"

namespace lockstep {

struct StepTraceOptions {
  std::string path;                // the file that rank 0 writes; empty: none
  int64_t steps = 0;               // 0: no trace
  StepProfile* profile = nullptr;  // measures the same steps, if not null
};

// Every rank owns one; only the thread that runs the step uses it. The file leaves out the first steps of a run, in
// which libraries initialize. On a backend that only enqueues kernels, kernel spans show the host's time for enqueuing.
class StepTrace {
 public:
  static constexpr int64_t kWarmUpSteps = 2;  // of a run, which are left out

  // `files` writes rank 0's file.
  StepTrace(ProcessGroup& group, FileWorker& files, StepTraceOptions options)
      : group_(group), files_(files), options_(std::move(options)) {}

  // begin_step() also enters StepPart::data, because a step starts with reading its data. Other spans must end in the
  // part in which they started.
  void begin_step(int64_t step);
  void enter(StepPart part);
  void end_step();

  // Returns whether all requested steps have been traced, so that write() is due.
  bool complete() const { return started_ > 0 && traced_ == options_.steps; }
  // Collective. Ends tracing, writes the file and returns the number of traced steps; does nothing and returns 0 if no
  // step was traced or this was called before.
  int64_t write();

 private:
  void start_if_due();
  void write(const std::vector<TraceSpan>& spans);

  ProcessGroup& group_;
  FileWorker& files_;
  StepTraceOptions options_;
  int64_t seen_ = 0, traced_ = 0;  // numbers of steps
  double started_ = 0;             // when tracing started; 0 if it is off
  std::string step_name_;
  StepPart part_ = StepPart::data;
  std::optional<TraceScope> step_span_, part_span_;  // of the current step, if tracing is on or a span observer is set
};

}  // namespace lockstep
