#include "lockstep/train/step_work.h"

#include "lockstep/base/error.h"
#include "lockstep/base/trace.h"
#include "train/reduction_plan.h"

namespace lockstep {
namespace {

// The number of steps before one is captured, because libraries finish their initialization in the first steps.
constexpr int64_t kWarmUpSteps = 2;

bool may_capture(const StepWorkParts& parts) {
  return parts.config.device.graph != GraphCapture::off && parts.communicator.stream_ordered();
}

}  // namespace

StepWork::StepWork(const StepWorkParts& parts)
    : parts_(parts),
      updater_(parts.backend, parts.model.training(), parts.config),
      accumulator_(parts.backend, parts.model.state(), parts.config.train.accumulate,
                   reduction_plan(parts.model, parts.config)),
      reducer_(
          parts.communicator, gradients_of(parts.model), reduction_plan(parts.model, parts.config),
          [this](Stream& stream, size_t bucket) {
            if (accumulator_.active()) accumulator_.complete(stream, bucket);
          },
          wire_format(parts.model, parts.config, parts.communicator.size())),
      may_capture_(may_capture(parts)),
      arenas_(parts.model.training_arenas()) {}

void StepWork::enter(StepPart part) {
  parts_.timer.enter(part);
  parts_.trace.enter(part);
}

// Enqueues compute(), as captured work if the backend supports it. A capture contains nothing that changes between
// steps, because the batch and the scalars of the step are at fixed addresses. There is one capture each for the first
// micro-batch, which starts a sum, for the last one, which ends the step, and for those in between, which are all
// alike.
void StepWork::enqueue(int64_t step, int64_t micro, const ExternalInputs& batch) {
  step_ = step;
  arenas_.external = batch;
  arenas_.external.step = parts_.frame.dropout();
  arenas_.external.loss_scale = parts_.frame.loss_scale();
  const bool first = micro == 0, last = micro + 1 == parts_.config.train.accumulate;
  std::unique_ptr<CapturedWork>& captured = captured_[last ? 2 : first ? 0 : 1];
  if (may_capture_ && !captured && computed_ >= kWarmUpSteps * parts_.config.train.accumulate) {
    captured = capture(micro);
    may_capture_ = captured != nullptr;
  }
  ++computed_;
  if (!captured) return compute(micro);
  const TraceScope span("captured step");
  parts_.communicator.enqueue_captured([&] { captured->launch(parts_.stream); });
}

// Returns null if the backend does not support captures, or if the capture failed for the reason not_captured().
// Nothing has been enqueued then.
std::unique_ptr<CapturedWork> StepWork::capture(int64_t micro) {
  try {
    return parts_.backend.capture(parts_.stream, [&] { compute(micro); });
  } catch (const Error& error) {
    parts_.communicator.check();  // throws if the communicator has failed, which is not a failure of the capture
    not_captured_ = fmt::format(
        "the step cannot be captured, so its kernels are enqueued one by one, which costs speed, no more: {}",
        error.what());
    reducer_.abandon_step();
    enter(StepPart::compute);
    return nullptr;
  }
}

// Runs one micro-batch of a step; with the last one, also the all-reduce and the update.
void StepWork::compute(int64_t micro) {
  forward();
  backward(micro);
  if (micro + 1 < parts_.config.train.accumulate) return;
  reduce();
  enter(StepPart::save);
  parts_.checkpointer.wait_copied();
  enter(StepPart::compute);
  update();
}

void StepWork::forward() {
  const TraceScope span("forward");
  parts_.model.training().forward(parts_.stream, arenas_, sum_over_ranks_);
  parts_.frame.pack_header(parts_.stream, arenas_);
}

// Starts the all-reduce of each gradient bucket as soon as it is final. The last bucket contains the batch-norm moments
// and the step header, so it is started when everything is final. All micro-batches except the last are only added up.
void StepWork::backward(int64_t micro) {
  const TraceScope span("backward");
  if (micro + 1 < parts_.config.train.accumulate) {
    parts_.model.training().backward(parts_.stream, arenas_, {}, sum_over_ranks_);
    accumulator_.add(parts_.stream, micro);
    return;
  }
  reducer_.begin_step(step_);
  parts_.model.training().backward(
      parts_.stream, arenas_, [&](int32_t position) { reducer_.ready_up_to(parts_.stream, position); },
      sum_over_ranks_);
  reducer_.last_ready(parts_.stream);
}

// Returns the blocking all-reduce of synchronized batch norm. Its time counts as StepPart::reduce, because it waits for
// other ranks. Its trace span is nested in those of the step's part and of the pass.
RankSum StepWork::sum_over_ranks() {
  return [this](Stream& stream, void* values, int64_t elements, const std::string& name) {
    parts_.timer.enter(StepPart::reduce);
    const TraceScope span("reduce");
    parts_.communicator.all_reduce_now(stream, {static_cast<float*>(values), static_cast<size_t>(elements)},
                                       fmt::format("step {} {}", step_, name));
    parts_.timer.enter(StepPart::compute);
  };
}

void StepWork::reduce() {
  enter(StepPart::reduce);
  reducer_.wait(parts_.stream);
}

void StepWork::update() {
  const TraceScope span("update");
  parts_.frame.decide(parts_.stream);
  updater_.apply(parts_.stream, parts_.model.state(), parts_.frame.scalars());
}

}  // namespace lockstep
