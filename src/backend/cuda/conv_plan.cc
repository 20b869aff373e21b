#include "backend/cuda/conv_plan.h"

#include <algorithm>

#include "backend/cuda/conv_graph.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

namespace fe = cudnn_frontend;

// Engines with larger workspaces gain little speed and take memory that activations need. A fused one is to save memory
// traffic, which a large workspace is as well.
constexpr int64_t kMaxWorkspaceBytes = int64_t{1} << 30, kMaxFusedWorkspaceBytes = int64_t{1} << 26;

void check(fe::error_t status, const ConvProblem& problem) {
  if (status.is_bad()) fail(ExitCode::config, "cuDNN cannot plan {}: {}", problem.to_string(), status.get_message());
}

// Accepted engines give the same bits in every run, are not compiled at start, and compute float32 in full precision.
void set_conditions(fe::graph::Graph& graph, const ConvProblem& p) {
  std::vector<fe::NumericalNote_t> unwanted = {fe::NumericalNote_t::NONDETERMINISTIC,
                                               fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION};
  if (p.dtype == DType::f32) {
    unwanted.push_back(fe::NumericalNote_t::DOWN_CONVERT_INPUTS);
    if (!p.tf32) unwanted.push_back(fe::NumericalNote_t::TENSOR_CORE);
  }
  graph.deselect_numeric_notes(unwanted);
  graph.deselect_behavior_notes({fe::BehaviorNote_t::RUNTIME_COMPILATION});
  graph.deselect_workspace_greater_than(p.fusion == Fusion::none ? kMaxWorkspaceBytes : kMaxFusedWorkspaceBytes);
}

// A graph that names the engine of its plan.
class ConvGraph final : public fe::graph::Graph {
 public:
  bool has_note(fe::NumericalNote_t note) const {
    const auto& notes = plans.numeric_notes.at(plans.candidate);
    return std::ranges::find(notes, note) != notes.end();
  }
};

class FrontendPlan final : public ConvPlan {
 public:
  explicit FrontendPlan(std::unique_ptr<ConvGraph> graph) : graph_(std::move(graph)) {
    int64_t bytes = 0;
    require(graph_->get_workspace_size(bytes).is_good() && graph_->get_plan_name(name_).is_good(),
            "a cuDNN plan without a name or size");
    workspace_bytes_ = static_cast<size_t>(bytes);
  }

  void run(cudnnHandle_t handle, std::span<const PlanTensor> tensors, void* workspace) const override {
    for (const PlanTensor& tensor : tensors) pointers_[tensor.id] = tensor.memory;
    fe::error_t status = graph_->execute(handle, pointers_, workspace);
    if (status.is_bad()) fail(ExitCode::internal, "cuDNN {}: {}", name_, status.get_message());
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }
  std::string name() const override { return name_; }
  bool tensor_cores() const override { return graph_->has_note(fe::NumericalNote_t::TENSOR_CORE); }

 private:
  std::unique_ptr<ConvGraph> graph_;
  mutable std::unordered_map<int64_t, void*>
      pointers_;  // in the form that execute() needs; nothing is allocated after the first run
  std::string name_;
  size_t workspace_bytes_ = 0;
};

}  // namespace

std::string ConvProblem::to_string() const {
  constexpr std::string_view kKinds[] = {"convolution", "gradient by input", "gradient by weights"};
  constexpr std::string_view kFusions[] = {"", " with statistics", " of normalized images with statistics",
                                           " of normalized images", " with a norm's gradients"};
  return fmt::format("{}{} {}{} x {} weights {} y {} stride {}x{} padding {}x{}", kKinds[static_cast<size_t>(kind)],
                     kFusions[static_cast<size_t>(fusion)], dtype_name(dtype), tf32 ? " (tf32)" : "", x.to_string(),
                     weights.to_string(), y.to_string(), window.stride_h, window.stride_w, window.pad_h, window.pad_w);
}

struct ConvPlanner::Device {
  cudnnHandle_t handle = nullptr;
  std::shared_ptr<fe::DeviceProperties> properties;
  std::unique_ptr<ConvGraph> candidates(const ConvProblem& problem) const;
};

ConvPlanner::ConvPlanner(cudnnHandle_t handle) : device_(std::make_unique<Device>()) { device_->handle = handle; }

ConvPlanner::ConvPlanner(std::string_view device_as_json) : device_(std::make_unique<Device>()) {
  device_->properties = std::make_shared<fe::DeviceProperties>();
  fe::error_t status = device_->properties->deserialize({device_as_json.begin(), device_as_json.end()});
  if (status.is_bad()) fail(ExitCode::config, "cuDNN does not know such a device: {}", status.get_message());
}

ConvPlanner::~ConvPlanner() = default;

// The convolution with cuDNN's ranking of the engines that meet our conditions.
std::unique_ptr<ConvGraph> ConvPlanner::Device::candidates(const ConvProblem& problem) const {
  auto graph = std::make_unique<ConvGraph>();
  if (properties) graph->set_device_properties(properties);
  draw(*graph, problem);
  check(graph->validate(), problem);
  check(properties ? graph->build_operation_graph() : graph->build_operation_graph(handle), problem);
  check(graph->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}), problem);
  set_conditions(*graph, problem);
  return graph;
}

std::shared_ptr<const ConvPlan> ConvPlanner::plan(const ConvProblem& problem) {
  auto& known = plans_[problem.to_string()];
  if (known) return known;
  // For 16-bit floats, prefer an engine on tensor cores: cuDNN's ranking puts others first for some first layers.
  std::unique_ptr<ConvGraph> graph;
  if (problem.dtype != DType::f32) {
    graph = device_->candidates(problem);
    graph->select_numeric_notes({fe::NumericalNote_t::TENSOR_CORE});
    if (graph->check_support().is_bad()) graph = nullptr;
  }
  if (!graph) {
    graph = device_->candidates(problem);
    check(graph->check_support(), problem);
  }
  check(graph->build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE), problem);
  known = std::make_shared<FrontendPlan>(std::move(graph));
  return known;
}

bool ConvPlanner::can(const ConvProblem& problem, std::string* why) {
  const std::string text = problem.to_string();
  if (!refusals_.contains(text)) {
    try {
      plan(problem);
      return true;
    } catch (const Error& error) {
      plans_.erase(text);
      refusals_[text] = error.what();
    }
  }
  if (why) *why = refusals_[text];
  return false;
}

}  // namespace lockstep::cuda
