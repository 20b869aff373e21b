#include "backend/cuda/conv_plan.h"

#include <algorithm>
#include <set>

#include "backend/cuda/conv_graph.h"
#include "backend/cuda/conv_timer.h"
#include "lockstep/backend/out_of_memory.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/split_words.h"

namespace lockstep::cuda {
namespace {

namespace fe = cudnn_frontend;

constexpr size_t kTimedPlans = 8;        // of each shape
constexpr double kFasterByNoise = 0.98;  // a plan that saves less time than this is not preferred to cuDNN's first one

void check(fe::error_t status, const ConvProblem& problem) {
  if (status.is_bad()) fail(ExitCode::config, "cuDNN cannot plan {}: {}", problem.to_string(), status.get_message());
}

void set_conditions(fe::graph::Graph& graph, const ConvProblem& problem) {
  const EngineConditions conditions = conditions_of(problem);
  graph.deselect_numeric_notes(conditions.unwanted);
  graph.deselect_behavior_notes(conditions.unwanted_behavior);
  graph.deselect_workspace_greater_than(conditions.most_workspace_bytes);
}

// A graph that has some of its plans built, and knows the engine of the one that is executed.
class ConvGraph final : public fe::graph::Graph {
 public:
  bool has_note(fe::NumericalNote_t note) const {
    const auto& notes = plans.numeric_notes.at(plans.candidate);
    return std::ranges::find(notes, note) != notes.end();
  }

  std::string name_of(int64_t plan) const {
    std::string name;
    require(get_plan_name_at_index(plan, name).is_good(), "a cuDNN plan without a name");
    return name;
  }

  // Builds the first plans of this name, or of any for an empty one, that meet the conditions. The fallbacks repeat
  // some of the ranking.
  std::vector<int64_t> build_first(size_t most, std::string_view name = {}) {
    std::vector<int64_t> built;
    std::set<std::string> seen;
    for (int64_t i = 0; i < get_execution_plan_count() && built.size() < most; ++i) {
      const std::string its_name = name_of(i);
      if ((!name.empty() && its_name != name) || seen.contains(its_name) || build_plan_at_index(i).is_bad()) continue;
      seen.insert(its_name);
      built.push_back(i);
    }
    return built;
  }

  // Keeps one of the plans that were built.
  void keep(int64_t plan) {
    plans.candidate = plan;
    for (size_t i = 0; i < plans.execution_plans.size(); ++i) {
      if (i != static_cast<size_t>(plan)) plans.execution_plans[i].reset();
    }
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
  std::string name;
  std::shared_ptr<fe::DeviceProperties> properties;
  std::unique_ptr<ConvGraph> candidates(const ConvProblem& problem) const;
  std::unique_ptr<ConvGraph> allowed(const ConvProblem& problem) const;
};

ConvPlanner::ConvPlanner(cudnnHandle_t handle, std::string device) : device_(std::make_unique<Device>()) {
  device_->handle = handle;
  device_->name = std::move(device);
}

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

// The same with at least one engine.
std::unique_ptr<ConvGraph> ConvPlanner::Device::allowed(const ConvProblem& problem) const {
  if (conditions_of(problem).prefers_tensor_cores) {
    auto graph = candidates(problem);
    graph->select_numeric_notes({fe::NumericalNote_t::TENSOR_CORE});
    if (graph->check_support().is_good()) return graph;
  }
  auto graph = candidates(problem);
  check(graph->check_support(), problem);
  return graph;
}

std::shared_ptr<const ConvPlan> ConvPlanner::first_plan(const ConvProblem& problem) const {
  std::unique_ptr<ConvGraph> graph = device_->allowed(problem);
  check(graph->build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE), problem);
  return std::make_shared<FrontendPlan>(std::move(graph));
}

std::shared_ptr<const ConvPlan> ConvPlanner::plan(const ConvProblem& problem) {
  Known& known = known_[problem.to_string()];
  if (known.kernels == 0) choose(problem, known);
  ++known.kernels;
  return known.plan;
}

void ConvPlanner::choose(const ConvProblem& problem, Known& known) {
  if (known.taken) {
    std::unique_ptr<ConvGraph> graph = device_->allowed(problem);
    const std::vector<int64_t> built = graph->build_first(1, known.name);
    if (built.empty()) {
      fail(ExitCode::checkpoint, "cuDNN has no plan {} for {}", printable(known.name), problem.to_string());
    }
    known.plan = std::make_shared<FrontendPlan>(std::move(graph));
    return;
  }
  if (monotonic_seconds() < deadline_) time(problem, known);
  if (!known.plan) known.plan = first_plan(problem);
  known.name = known.plan->name();
}

// Leaves known.plan as it is if nothing could be timed.
void ConvPlanner::time(const ConvProblem& problem, Known& known) {
  const double began = monotonic_seconds();
  std::unique_ptr<ConvGraph> graph = device_->allowed(problem);
  const std::vector<int64_t> plans = graph->build_first(kTimedPlans);
  int64_t workspace_bytes = 0;
  for (const int64_t plan : plans) {
    workspace_bytes = std::max(workspace_bytes, graph->get_workspace_size_plan_at_index(plan));
  }
  int64_t fastest = -1;
  try {
    ConvTimer timer(device_->handle, problem, static_cast<size_t>(workspace_bytes));
    std::unordered_map<int64_t, void*> tensors;
    for (int64_t id = kX; id < kAfterLast; ++id) tensors[id] = timer.tensor(id);
    for (const int64_t plan : plans) {
      if (monotonic_seconds() >= deadline_) break;
      const auto run = [&] {
        fe::error_t status = graph->execute_plan_at_index(device_->handle, tensors, timer.workspace(), plan);
        if (status.is_bad()) fail(ExitCode::internal, "cuDNN: {}", status.get_message());
      };
      const std::optional<double> seconds = timer.seconds(run, known.fastest);
      ++timing_.timed;
      if (!seconds) ++timing_.failed;
      if (seconds && (fastest < 0 || *seconds < kFasterByNoise * known.fastest)) {
        fastest = plan;
        known.fastest = *seconds;
      }
      if (seconds && known.first == 0) known.first = *seconds;
    }
  } catch (const OutOfMemory&) {  // then they are not compared
  }
  timing_.seconds += monotonic_seconds() - began;
  if (fastest < 0) return;
  graph->keep(fastest);
  known.plan = std::make_shared<FrontendPlan>(std::move(graph));
}

bool ConvPlanner::can(const ConvProblem& problem, std::string* why) {
  const std::string text = problem.to_string();
  if (!refusals_.contains(text)) {
    try {
      Known& known = known_[text];
      if (!known.plan) known.plan = first_plan(problem);
      return true;
    } catch (const Error& error) {
      refusals_[text] = error.what();
    }
  }
  if (why) *why = refusals_[text];
  return false;
}

std::string ConvPlanner::valid_for() const {
  const size_t version = cudnnGetVersion();
  return fmt::format("{}, cuDNN {}.{}.{}", device_->name, version / 10000, version / 100 % 100, version % 100);
}

void ConvPlanner::take(std::string_view choices) {
  for (const std::string_view line : split_words(choices, '\n')) {
    const std::vector<std::string_view> words = split_words(line, '\t');
    if (words.size() != 2 || words[0].empty() || words[1].empty()) {
      fail(ExitCode::checkpoint, "this line is not a plan and its shape: {}", printable(line));
    }
    Known& known = known_[std::string(words[1])];
    if (known.taken) fail(ExitCode::checkpoint, "there are two plans for {}", printable(words[1]));
    known.name = words[0];
    known.taken = true;
  }
}

void ConvPlanner::time_plans(double seconds) { deadline_ = monotonic_seconds() + seconds; }

std::string ConvPlanner::choices() const {
  std::string text;
  for (const auto& [problem, known] : known_) {
    if (!known.name.empty()) text += fmt::format("{}\t{}\n", known.name, problem);
  }
  return text;
}

PlanTuning::Result ConvPlanner::result() const {
  Result result = timing_;
  for (const auto& [problem, known] : known_) {
    if (known.kernels == 0) continue;
    const auto kernels = static_cast<double>(known.kernels);
    result.kernels += known.kernels;
    ++result.shapes;
    result.taken += known.taken;
    result.left += !known.taken && known.fastest == 0;
    result.first += kernels * known.first;
    result.fastest += kernels * known.fastest;
  }
  return result;
}

}  // namespace lockstep::cuda
