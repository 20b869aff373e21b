#include "lockstep/train/device_step_state.h"

#include <algorithm>
#include <array>

#include "lockstep/base/error.h"
#include "lockstep/train/model_graphs.h"

namespace lockstep {
namespace {

FillStepHeader header_rule(const Graph& graph) {
  FillStepHeader rule;
  for (const LossHead& head : graph.losses) rule.head_weights.push_back(head.weight);
  return rule;
}

float* header_in(const ModelState& state) {
  return state.gradients.as<float>() + state.trained_elements + state.moment_elements;
}

}  // namespace

DeviceStepState::DeviceStepState(const Backend& backend, const CompiledModel& model, const Config& config, int ahead)
    : backend_(backend), model_(model), ahead_(ahead), micro_batches_(config.train.accumulate) {
  header_ = backend.compile(UpdateOp{DType::f32, header_rule(model.training().graph())});
  squares_ = backend.compile(UpdateOp{DType::f32, SumOfSquares{model.layout().trained_elements}});
  decide_ = backend.compile(UpdateOp{DType::f32, DecideUpdate{.clip_norm = config.train.clip_norm,
                                                              .beta1 = config.optimizer.beta1,
                                                              .beta2 = config.optimizer.beta2,
                                                              .average_decay = config.ema.decay,
                                                              .halt = config.train.not_finite == NonFiniteRule::stop,
                                                              .scale_loss = compute_type(config) == DType::f16}});
  find_ = backend.compile(UpdateOp{DType::f32, FindNonFinite{model.layout().trained_elements}});
  for (int i = 0; i <= ahead; ++i) done_.push_back(backend.make_event());
  ring_ = backend.allocate_pinned(done_.size() * sizeof(Slot));
  dropout_ring_ = backend.allocate_pinned(done_.size() * micro_batches_ * sizeof(Dropout));
  control_ = backend.allocate(sizeof(StepControl));
  dropout_ = backend.allocate(sizeof(Dropout));
  squares_result_ = backend.allocate(sizeof(double));
  scalars_ = backend.allocate(kUpdateScalars * sizeof(float));
  update_state_ = backend.allocate(sizeof(UpdateState));
  outcome_ = backend.allocate(sizeof(StepOutcome));
  size_t workspace = 0;
  for (const auto& kernel : {&header_, &squares_, &decide_, &find_}) {
    workspace = std::max(workspace, (*kernel)->workspace_bytes());
  }
  workspace_ = backend.allocate(workspace);
}

void DeviceStepState::run(const Kernel& kernel, Stream& stream, std::span<void* const> inputs,
                          std::span<void* const> outputs) {
  kernel.run({stream, inputs, outputs, workspace_.data()});
}

void DeviceStepState::restart(Stream& stream, int64_t updates, const LossScale& loss_scale) {
  require(started_ == retired_, "{} steps are in flight", started_ - retired_);
  const UpdateState state{.updates = static_cast<double>(updates),
                          .loss_scale = loss_scale.value,
                          .steady_steps = static_cast<double>(loss_scale.steady_steps)};
  backend_.copy(stream, update_state_.data(), &state, sizeof state);
  std::array<float, kUpdateScalars> scalars{};
  scalars[kLossScale] = static_cast<float>(loss_scale.value);
  backend_.copy(stream, scalars_.data(), scalars.data(), sizeof scalars);
  stream.wait();
}

void DeviceStepState::begin(Stream& stream, const StepInput& input) {
  require(started_ - retired_ <= ahead_, "{} steps are in flight already", started_ - retired_);
  require(input.dropout.size() == micro_batches_, "{} micro-batches, not {}", input.dropout.size(), micro_batches_);
  Slot& mine = slot(started_);
  mine = {.control = input.control};
  std::ranges::copy(input.dropout, dropout_of(started_));
  backend_.copy(stream, control_.data(), &mine.control, sizeof mine.control);
  backend_.copy(stream, outcome_.data(), &mine.initial_outcome, sizeof mine.initial_outcome);
}

void DeviceStepState::begin_batch(Stream& stream, size_t micro) {
  backend_.copy(stream, dropout_.data(), dropout_of(started_) + micro, sizeof(Dropout));
}

void DeviceStepState::pack_header(Stream& stream, const Arenas& arenas) {
  const Executable& training = model_.training();
  std::vector<void*> inputs = {control_.data(), training.address(training.graph().losses.front().correct, arenas)};
  for (const LossHead& head : training.graph().losses) inputs.push_back(training.address(head.loss, arenas));
  const std::array<void*, 2> outputs{header_in(model_.state()), outcome_.data()};
  run(*header_, stream, inputs, outputs);
}

void DeviceStepState::decide(Stream& stream) {
  const ModelState& state = model_.state();
  const std::array<void*, 1> gradients{state.gradients.data()}, squares{squares_result_.data()};
  run(*squares_, stream, gradients, squares);
  const std::array<void*, 3> inputs{header_in(state), squares_result_.data(), control_.data()};
  const std::array<void*, 3> outputs{scalars_.data(), update_state_.data(), outcome_.data()};
  run(*decide_, stream, inputs, outputs);
  const std::array<void*, 2> suspects{state.gradients.data(), squares_result_.data()};
  const std::array<void*, 1> finding{outcome_.data()};
  run(*find_, stream, suspects, finding);
}

void DeviceStepState::end(Stream& stream) {
  backend_.copy(stream, &slot(started_).outcome, outcome_.data(), sizeof(StepOutcome));
  stream.record(*done_[slot_index(started_)]);
  ++started_;
}

std::optional<StepOutcome> DeviceStepState::next_outcome(bool drain) {
  if (in_flight() == 0 || (!drain && in_flight() <= ahead_)) return std::nullopt;
  done_[slot_index(retired_)]->wait();
  return slot(retired_++).outcome;
}

}  // namespace lockstep
