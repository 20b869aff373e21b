#include "lockstep/train/decay_loss.h"

#include <algorithm>
#include <array>

#include "lockstep/backend/update.h"

namespace lockstep {

DecayLoss::DecayLoss(const Config& config, const CompiledModel& model, Stream& stream)
    : factor_(config.optimizer.weight_decay / 2), model_(model), stream_(stream) {
  const ParameterTable& table = model.parameters();
  for (ParameterId id = 0; id < table.size(); ++id) {
    const bool exempt = table[id].is_norm_or_bias() && !config.optimizer.decay_norm_and_bias;
    if (table[id].trained() && !exempt) decayed_.push_back(id);
  }
  const Backend& backend = model.backend();
  if (backend.host_addressable() || factor_ == 0) return;
  size_t workspace = 0;
  for (const ParameterId id : decayed_) {
    const int64_t offset = model.layout().offset[id];
    parts_.push_back({.weights = model.state().parameters.as<float>() + offset,
                      .squares = backend.compile(UpdateOp{DType::f32, SumOfSquares{table[id].shape.elements()}})});
    workspace = std::max(workspace, parts_.back().squares->workspace_bytes());
  }
  sums_ = backend.allocate(parts_.size() * sizeof(double));
  arrived_sums_ = backend.allocate_pinned(sums_.bytes());
  workspace_ = backend.allocate(workspace);
  arrived_ = backend.make_event();
  enqueue();
}

void DecayLoss::enqueue() {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const std::array<void*, 1> in{parts_[i].weights}, out{sums_.as<double>() + i};
    parts_[i].squares->run({stream_, in, out, workspace_.data()});
  }
  model_.backend().copy(stream_, arrived_sums_.data(), sums_.data(), sums_.bytes());
  stream_.record(*arrived_);
}

double DecayLoss::value() {
  if (factor_ == 0) return 0;
  double squares = 0;
  if (parts_.empty()) {
    for (const ParameterId id : decayed_) {
      for (const float w : model_.parameter(id)) squares += static_cast<double>(w) * w;
    }
    return factor_ * squares;
  }
  arrived_->wait();  // enqueued several steps ago, so this waits only if no step has run since
  for (size_t i = 0; i < parts_.size(); ++i) squares += arrived_sums_.as<double>()[i];
  enqueue();
  return factor_ * squares;
}

}  // namespace lockstep
