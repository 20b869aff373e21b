#include "lockstep/train/step_work.h"

#include <array>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/random.h"
#include "lockstep/base/trace.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/graph/predicted_time.h"
#include "lockstep/train/model_graphs.h"

namespace lockstep {
namespace {

// Returns the gradient arena, which the buckets divide.
std::span<float> gradients_of(const CompiledModel& model) {
  const ModelState& state = model.state();
  return {state.gradients.as<float>(), static_cast<size_t>(state.gradient_elements())};
}

// NCCL would never return, or add values that do not belong together, if ranks had different buckets.
void expect_equal_buckets(ProcessGroup& group, const std::vector<Bucket>& buckets) {
  std::string ends;
  for (const Bucket& bucket : buckets) ends += fmt::format("{} {},", bucket.offset, bucket.count);
  const auto key = static_cast<int64_t>(fnv1a64(ends) >> 1);
  std::array<int64_t, 2> extremes{key, -key};
  group.all_reduce_max(extremes, {"the buckets of gradients"});
  if (extremes[0] == -extremes[1]) return;
  throw AgreedError(
      ExitCode::config,
      "the GPUs of this job fuse convolutions differently, so that their gradients fall into different buckets; "
      "use GPUs of one kind, or train.precision = \"bf16\"");
}

// Returns the buckets for NCCL, which follow from assumed times of the backward pass and of all-reduces. These depend
// only on the configuration, the graph and the kind of GPU, so every start of a run has the same plan.
std::vector<Bucket> timed_plan(const RankContext& rank) {
  const Executable& training = rank.model.training();
  const Precision precision = rank.config.train.precision;
  const DeviceRates rates = assumed_rates(compute_type(rank.config), precision == Precision::tf32);
  const auto nodes = static_cast<int32_t>(training.schedule().order.size());
  std::vector<double> ends(nodes);
  double now = 0;
  for (int32_t p = training.schedule().forward_end; p < nodes; ++p) {
    now += node_seconds(training, rank.backend(), p, rates) + rates.gap_seconds;
    ends[p] = now;
  }
  std::vector<ReadyMark> marks;
  for (const GradientMark& m : training.gradient_marks()) marks.push_back({m.position, m.end, ends[m.position]});
  const std::vector<int64_t>& first = rank.group.first_on_host();
  const auto hosts = static_cast<int>(std::set(first.begin(), first.end()).size());
  const bool ring = rank.config.comm.algorithm == ReductionAlgorithm::ring;
  const bool narrow = rank.config.comm.gradient_dtype != WireType::float32;
  const ModelState& state = rank.model.state();
  std::vector<Bucket> buckets =
      plan_timed_buckets(marks, {.total_elements = state.gradient_elements(),
                                 .wire_elements = state.trained_elements,
                                 .wire_bytes = narrow ? 2 : 4,
                                 .end_seconds = now,
                                 .cost = assumed_nccl_cost(rank.communicator.size(), hosts, ring)});
  expect_equal_buckets(rank.group, buckets);
  return buckets;
}

std::vector<Bucket> reduction_plan(const RankContext& rank) {
  const bool on_host = rank.backend().host_addressable();
  const double megabytes = rank.config.comm.bucket_mb;
  if (megabytes == 0 && !on_host && rank.communicator.stream_ordered()) return timed_plan(rank);
  std::vector<ReadyMark> marks;
  for (const GradientMark& m : rank.model.training().gradient_marks()) marks.push_back({m.position, m.end});
  const int64_t usual = on_host ? kHostBucketBytes : kDeviceBucketBytes;
  const double bytes = megabytes > 0 ? megabytes * 1024 * 1024 : static_cast<double>(usual);
  return plan_buckets(marks, {.total_elements = rank.model.state().gradient_elements(),
                              .target_elements = static_cast<int64_t>(bytes / sizeof(float))});
}

// Returns the wire format for comm.gradient_dtype, or nothing for float32 and for a single rank.
std::optional<WireFormat> wire_format(const CompiledModel& model, const Config& config, int ranks) {
  const WireType type = config.comm.gradient_dtype;
  if (type == WireType::float32 || ranks == 1) return std::nullopt;
  return WireFormat{.backend = model.backend(),
                    .type = type == WireType::bf16 ? DType::bf16 : DType::f16,
                    .elements = model.state().trained_elements};
}

bool has_failed(Communicator& communicator) {
  try {
    communicator.check();
    return false;
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

StepWork::StepWork(const RankContext& rank, Checkpointer& checkpointer, DeviceStepState& device_state, StepTimer& timer,
                   StepTrace& trace)
    : rank_(rank),
      checkpointer_(checkpointer),
      device_state_(device_state),
      timer_(timer),
      trace_(trace),
      updater_(rank.backend(), rank.model.training(), rank.config),
      reducer_(
          rank.communicator, gradients_of(rank.model), reduction_plan(rank),
          [this](Stream& stream, size_t bucket) {
            if (accumulator_.active()) accumulator_.complete(stream, bucket);
          },
          wire_format(rank.model, rank.config, rank.communicator.size())),
      accumulator_(rank.backend(), rank.model.state(), rank.config.train.accumulate, reducer_.buckets()),
      may_capture_(rank.config.device.graph != GraphCapture::off && rank.communicator.stream_ordered()),
      arenas_(rank.model.training_arenas()) {}

void StepWork::enter(StepPart part) {
  timer_.enter(part);
  trace_.enter(part);
}

// Enqueues compute(), as captured work if the backend supports it. A capture contains nothing that changes between
// steps, because the batch and the scalars of the step are at fixed addresses. There is one capture each for the first
// micro-batch, which starts a sum, for the last one, which ends the step, and for those in between, which are all
// alike.
void StepWork::enqueue(int64_t step, int64_t micro, const ExternalInputs& batch) {
  step_ = step;
  arenas_.external = batch;
  arenas_.external.step = device_state_.dropout();
  arenas_.external.loss_scale = device_state_.loss_scale();
  const size_t part = micro + 1 == rank_.config.train.accumulate ? 2 : micro == 0 ? 0 : 1;
  if (may_capture_ && !tried_[part] && computed_ >= kStepsBeforeCapture * rank_.config.train.accumulate) {
    tried_[part] = true;
    captured_[part] = capture(micro);
  }
  ++computed_;
  if (!captured_[part]) return compute(micro);
  const TraceScope span("captured step");
  rank_.communicator.enqueue_captured([&] { captured_[part]->launch(rank_.stream); });
}

// Collective. Returns null if a rank cannot capture the work. Then all ranks enqueue all work uncaptured from now on,
// because NCCL requires that an operation is captured either on all ranks or on none. A communicator that cannot be
// captured has failed for good, so it is replaced on all ranks.
std::unique_ptr<CapturedWork> StepWork::capture(int64_t micro) {
  rank_.stream.wait();  // a communicator that is replaced drops what is in flight, also on other ranks
  rank_.group.barrier({"the captured step"});
  rank_.communicator.check();  // an earlier failure is not one of the capture
  std::unique_ptr<CapturedWork> captured = try_capture(micro);
  const bool broken = has_failed(rank_.communicator);
  std::array<int64_t, 2> failures{!captured || broken, broken};
  rank_.group.all_reduce_max(failures, {"the captured step"});
  const auto [uncaptured, lost] = failures;
  if (uncaptured == 0) return captured;
  captured.reset();
  captured_ = {};
  may_capture_ = false;
  if (lost != 0) rank_.communicator.reconnect();
  return nullptr;
}

// Returns null if the backend does not support captures, or if the capture failed for the reason not_captured_. Nothing
// has been enqueued then.
std::unique_ptr<CapturedWork> StepWork::try_capture(int64_t micro) {
  try {
    return rank_.backend().capture(rank_.stream, [&] { compute(micro); });
  } catch (const Error& error) {
    if (rank_.config.device.graph == GraphCapture::on) {
      fail(error.code(), "device.graph = \"on\", but the step cannot be captured: {}", error.what());
    }
    not_captured_ = fmt::format(
        "the step cannot be captured, so its kernels are enqueued one by one, which costs speed, no more: {}",
        error.what());
    reducer_.abandon_step();
    enter(StepPart::compute);
    return nullptr;
  }
}

void StepWork::warn_if_not_captured() {
  if (capture_reported_ || computed_ <= kStepsBeforeCapture * rank_.config.train.accumulate) return;
  capture_reported_ = true;
  warn_together(rank_.group, {"the captured step"}, not_captured_);
}

// Runs one micro-batch of a step; with the last one, also the all-reduce and the update.
void StepWork::compute(int64_t micro) {
  forward();
  backward(micro);
  if (micro + 1 < rank_.config.train.accumulate) return;
  enter(StepPart::reduce);
  reducer_.wait(rank_.stream);
  enter(StepPart::save);
  checkpointer_.wait_copied();
  enter(StepPart::compute);
  update();
}

void StepWork::forward() {
  const TraceScope span("forward");
  rank_.model.training().forward(rank_.stream, arenas_, sum_over_ranks_);
  device_state_.pack_header(rank_.stream, arenas_);
}

// Starts the all-reduce of each gradient bucket as soon as it is final. The last bucket contains the batch-norm moments
// and the step header, so it is started when everything is final. All micro-batches except the last are only added up.
void StepWork::backward(int64_t micro) {
  const TraceScope span("backward");
  if (micro + 1 < rank_.config.train.accumulate) {
    rank_.model.training().backward(rank_.stream, arenas_, {}, sum_over_ranks_);
    accumulator_.add(rank_.stream, micro);
    return;
  }
  reducer_.begin_step(step_);
  rank_.model.training().backward(
      rank_.stream, arenas_, [&](int32_t position) { reducer_.ready_up_to(rank_.stream, position); }, sum_over_ranks_);
  reducer_.last_ready(rank_.stream);
}

// Returns the blocking all-reduce of synchronized batch norm. Its time counts as StepPart::reduce, because it waits for
// other ranks. Its trace span is nested in those of the step's part and of the pass.
RankSum StepWork::sum_over_ranks() {
  return [this](Stream& stream, void* values, int64_t elements, const std::string& name) {
    timer_.enter(StepPart::reduce);
    const TraceScope span("reduce");
    rank_.communicator.all_reduce_now(stream, {static_cast<float*>(values), static_cast<size_t>(elements)},
                                      fmt::format("step {} {}", step_, name));
    timer_.enter(StepPart::compute);
  };
}

void StepWork::update() {
  const TraceScope span("update");
  device_state_.decide(rank_.stream);
  updater_.apply(rank_.stream, rank_.model.state(), device_state_.scalars());
}

}  // namespace lockstep
