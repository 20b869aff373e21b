#include "test/gpu_lab/engine_graph.h"

#include <algorithm>

namespace lockstep::lab {

namespace fe = cudnn_frontend;

cuda::ConvKind kind_of(Fusion fusion) {
  if (fusion == Fusion::norm_gradients) return cuda::ConvKind::grad_input;
  return fusion == Fusion::normalized_grad_weights ? cuda::ConvKind::grad_weights : cuda::ConvKind::forward;
}

void EngineGraph::draw(const cuda::ConvProblem& problem, Fusion fusion) {
  cuda::ConvProblem fused = problem;
  fused.fusion = fusion;
  cuda::draw(*this, fused);
}

bool EngineGraph::find_engines(cudnnHandle_t handle) {
  return validate().is_good() && (handle ? build_operation_graph(handle) : build_operation_graph()).is_good() &&
         create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}).is_good();
}

bool EngineGraph::has(int64_t engine, fe::NumericalNote_t note) const {
  const auto& notes = plans.numeric_notes.at(static_cast<size_t>(engine));
  return std::ranges::find(notes, note) != notes.end();
}

bool EngineGraph::is_accepted(int64_t engine, const cuda::EngineConditions& conditions) const {
  const auto i = static_cast<size_t>(engine);
  return conditions.accept(plans.numeric_notes.at(i), plans.behavior_notes.at(i),
                           get_workspace_size_plan_at_index(engine));
}

bool EngineGraph::compiles_at_run_time(int64_t engine) const {
  const auto& notes = plans.behavior_notes.at(static_cast<size_t>(engine));
  return std::ranges::find(notes, fe::BehaviorNote_t::RUNTIME_COMPILATION) != notes.end();
}

}  // namespace lockstep::lab
