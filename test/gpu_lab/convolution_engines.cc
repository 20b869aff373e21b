// Every engine of cuDNN for every convolution of a training step, beside the one that the backend takes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "backend/cuda/context.h"
#include "backend/cuda/cuda_backend.h"
#include "lockstep/base/error.h"
#include "lockstep/graph/executable.h"
#include "test/gpu_lab/engine_graph.h"
#include "test/gpu_lab/training_graph.h"

namespace lockstep::lab {
namespace {

namespace fe = cudnn_frontend;
using cuda::ConvKind;
using cuda::ConvProblem;

constexpr int64_t kMostWorkspaceBytes = int64_t{1} << 30;
constexpr int kRepeats = 5;

// ---- the problems of a step, without what is fused with them

ConvProblem problem(ConvKind kind, const Window& window, const std::array<TensorDesc, 3>& x_weights_y, bool tf32) {
  const auto& [x, weights, y] = x_weights_y;
  return {.kind = kind,
          .dtype = x.dtype,
          .tf32 = tf32 && x.dtype == DType::f32,
          .window = cuda::stored_window(window, x),
          .x = cuda::stored_shape(x),
          .weights = cuda::stored_shape(weights),
          .y = cuda::stored_shape(y)};
}

struct Counted {
  ConvProblem problem;
  int count = 0;  // layers of the step that have it

  double multiply_adds() const {
    const Shape& w = problem.weights;
    return static_cast<double>(problem.y.elements()) * static_cast<double>(w.elements() / w[0]) * count;
  }
};

// Those that cost a step most come first, so that a limited time is used for them.
std::vector<Counted> problems_of(const Graph& graph, bool tf32) {
  std::map<std::string, Counted> problems;
  const auto add = [&](const ConvProblem& p) {
    ++problems.try_emplace(p.to_string(), Counted{.problem = p}).first->second.count;
  };
  for (const Node& node : graph.nodes) {
    const auto in = [&](size_t i) { return graph.value(node.inputs[i]).desc; };
    const auto out = [&] { return graph.value(node.outputs[0]).desc; };
    std::visit(Overload{[&](const OneOf<Conv2d, Conv2dStatistics> auto& op) {
                          add(problem(ConvKind::forward, op.window, {in(0), in(1), out()}, tf32));
                        },
                        [&](const OneOf<Conv2dGradInput, Conv2dGradInputNorm> auto& op) {
                          add(problem(ConvKind::grad_input, op.window, {out(), in(1), in(0)}, tf32));
                        },
                        [&](const OneOf<Conv2dGradWeights, Conv2dNormalizedGradWeights> auto& op) {
                          add(problem(ConvKind::grad_weights, op.window, {in(0), out(), in(1)}, tf32));
                        },
                        [](const auto&) {}},
               node.op);
  }
  std::vector<Counted> sorted;
  for (const auto& [text, counted] : problems) sorted.push_back(counted);
  std::ranges::stable_sort(sorted, std::greater(), &Counted::multiply_adds);
  return sorted;
}

size_t most_tensor_bytes(const std::vector<Counted>& problems) {
  size_t most = 0;
  for (const Counted& counted : problems) {
    const ConvProblem& p = counted.problem;
    for (const Shape& shape : {p.x, p.weights, p.y}) {
      most = std::max(most, static_cast<size_t>(shape.elements()) * dtype_bytes(p.dtype));
    }
  }
  return (most + 4095) / 4096 * 4096;  // each of the three begins at a page
}

// ---- all engines of one

constexpr size_t kVectorBytes = size_t{1} << 16;  // more than any layer's channels need

struct Engine {
  std::string name;
  bool allowed = false;          // the backend may take it (EngineConditions)
  int64_t workspace_bytes = -1;  // -1: it cannot be built
  double ms = -1;                // -1: not timed
};

// Where engines are planned and, on a device that is there, timed.
class Bench {
 public:
  Bench(const std::string& device_as_json, size_t most_tensor_bytes) : tensor_bytes_(most_tensor_bytes) {
    if (!device_as_json.empty()) {
      properties_ = std::make_shared<fe::DeviceProperties>();
      if (properties_->deserialize({device_as_json.begin(), device_as_json.end()}).is_bad()) {
        fail(ExitCode::config, "cuDNN does not know such a device");
      }
      return;
    }
    require(cudnnCreate(&handle_) == CUDNN_STATUS_SUCCESS, "cuDNN makes no handle");
    check(cudaMalloc(reinterpret_cast<void**>(&memory_), memory_bytes()), "memory for the tensors");
    fill();
    check(cudaEventCreate(&start_), "an event");
    check(cudaEventCreate(&stop_), "an event");
  }
  ~Bench() {
    if (!handle_) return;
    (void)cudaEventDestroy(stop_);
    (void)cudaEventDestroy(start_);
    (void)cudaFree(workspace_);
    (void)cudaFree(memory_);
    (void)cudnnDestroy(handle_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  // In the order of cuDNN's ranking; none when there is no such convolution. `on_engine` gets each one as soon as it is
  // timed, because an error of CUDA in a later one may end the program. Such an error names the engine.
  std::vector<Engine> engines(const ConvProblem& problem, Fusion fusion = Fusion::none,
                              const std::function<void(const Engine&)>& on_engine = {}) {
    EngineGraph graph;
    if (properties_) graph.set_device_properties(properties_);
    graph.draw(problem, fusion);
    if (!graph.find_engines(handle_)) return {};
    ConvProblem fused = problem;
    fused.fusion = fusion;
    const cuda::EngineConditions conditions = cuda::conditions_of(fused);
    only_tensor_cores_ = conditions.prefers_tensor_cores && has_tensor_cores(graph, conditions);
    fastest_ms_ = -1;
    std::vector<Engine> engines;
    std::set<std::string> seen;
    for (int64_t i = 0; i < graph.get_execution_plan_count(); ++i) {
      Engine engine;
      (void)graph.get_plan_name_at_index(i, engine.name);
      // The fallbacks repeat some of the ranking; compiling takes seconds.
      if (!seen.insert(engine.name).second || graph.compiles_at_run_time(i)) continue;
      try {
        measure(graph, conditions, i, engine);
      } catch (const Error& error) {
        fail(error.code(), "{} of {}: {}", engine.name, problem.to_string(), error.what());
      }
      engines.push_back(engine);
      if (on_engine) on_engine(engine);
    }
    return engines;
  }

 private:
  // Numbers of either sign between 1/8 and 2 in any of the types: zeros would be faster.
  void fill() {
    std::vector<uint16_t> noise(size_t{1} << 20);
    uint32_t state = 1;
    for (uint16_t& x : noise) {
      state = state * 1664525 + 1013904223;
      x = static_cast<uint16_t>((state >> 16 & 0x81ff) | 0x3e00);
    }
    const size_t bytes = noise.size() * sizeof noise[0], all = memory_bytes();
    for (size_t at = 0; at < all; at += bytes) {
      check(cudaMemcpy(memory_ + at, noise.data(), std::min(bytes, all - at), cudaMemcpyHostToDevice),
            "filling tensors");
    }
  }

  void have_workspace(int64_t bytes) {
    if (bytes <= workspace_bytes_) return;
    check(cudaFree(workspace_), "freeing the workspace");
    workspace_bytes_ = bytes;
    check(cudaMalloc(reinterpret_cast<void**>(&workspace_), static_cast<size_t>(bytes)), "memory for the workspace");
  }

  // Whether one of the engines that the backend accepts is on tensor cores.
  static bool has_tensor_cores(EngineGraph& graph, const cuda::EngineConditions& conditions) {
    for (int64_t i = 0; i < graph.get_execution_plan_count(); ++i) {
      if (!graph.has(i, fe::NumericalNote_t::TENSOR_CORE) || graph.compiles_at_run_time(i)) continue;
      if (graph.build_plan_at_index(i).is_good() && graph.is_accepted(i, conditions)) return true;
    }
    return false;
  }

  void measure(EngineGraph& graph, const cuda::EngineConditions& conditions, int64_t i, Engine& engine) {
    if (graph.build_plan_at_index(i).is_bad()) return;
    engine.workspace_bytes = graph.get_workspace_size_plan_at_index(i);
    engine.allowed =
        graph.is_accepted(i, conditions) && (!only_tensor_cores_ || graph.has(i, fe::NumericalNote_t::TENSOR_CORE));
    if (!handle_ || engine.workspace_bytes > kMostWorkspaceBytes) return;
    have_workspace(engine.workspace_bytes);
    if (time(graph, i, 1) < 0) return;  // loads the kernel
    engine.ms = time(graph, i, 1);
    if (engine.ms < 0) return;
    if (fastest_ms_ < 0 || engine.ms < 3 * fastest_ms_)
      engine.ms = time(graph, i, kRepeats);  // slow ones are not worth it
    if (fastest_ms_ < 0 || engine.ms < fastest_ms_) fastest_ms_ = engine.ms;
  }

  // Four tensors, and the vectors.
  size_t memory_bytes() const { return (kSlope - kX) * tensor_bytes_ + (kAfterLast - kSlope) * kVectorBytes; }
  std::unordered_map<int64_t, void*> tensors() const {
    std::unordered_map<int64_t, void*> pointers;
    for (int64_t id = kX; id < kSlope; ++id) pointers[id] = memory_ + static_cast<size_t>(id - kX) * tensor_bytes_;
    char* const vectors = memory_ + (kSlope - kX) * tensor_bytes_;
    for (int64_t id = kSlope; id < kAfterLast; ++id)
      pointers[id] = vectors + static_cast<size_t>(id - kSlope) * kVectorBytes;
    return pointers;
  }

  // Milliseconds of one run, or -1.
  double time(EngineGraph& graph, int64_t i, int runs) {
    std::unordered_map<int64_t, void*> pointers = tensors();
    bool good = true;
    check(cudaEventRecord(start_, nullptr), "an event");
    for (int run = 0; run < runs && good; ++run) {
      good = graph.execute_plan_at_index(handle_, pointers, workspace_, i).is_good();
    }
    check(cudaEventRecord(stop_, nullptr), "an event");
    check(cudaEventSynchronize(stop_), "running an engine");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start_, stop_), "the time between two events");
    return good ? static_cast<double>(ms) / runs : -1;
  }

  std::shared_ptr<fe::DeviceProperties> properties_;  // of a device that is only described
  cudnnHandle_t handle_ = nullptr;
  const size_t tensor_bytes_;
  char *memory_ = nullptr, *workspace_ = nullptr;
  int64_t workspace_bytes_ = 0;
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  bool only_tensor_cores_ = false;  // of the problem's engines, no others are allowed
  double fastest_ms_ = -1;          // of the problem's engines so far
};

// Times of a step's convolutions if each had the engine that is named; -1 when a convolution has no time of such an
// engine: a sum without it would be too small. `first`: of the engines of cuDNN's ranking that ran.
struct Totals {
  double chosen = 0, first = 0, fastest_allowed = 0, fastest = 0;
  size_t problems = 0, engines = 0;

  void add(const std::vector<Engine>& engines_of_one, const std::string& taken, int count) {
    double of_taken = -1, of_first = -1, best = -1, best_allowed = -1;
    const auto less = [](double ms, double than) { return ms >= 0 && (than < 0 || ms < than); };
    for (const Engine& engine : engines_of_one) {
      if (less(engine.ms, best)) best = engine.ms;
      if (engine.allowed && less(engine.ms, best_allowed)) best_allowed = engine.ms;
      if (engine.name == taken) of_taken = engine.ms;
      if (of_first < 0) of_first = engine.ms;
    }
    const auto add_to = [count](double& sum, double ms) { sum = sum < 0 || ms < 0 ? -1 : sum + count * ms; };
    add_to(chosen, of_taken);
    add_to(first, of_first);
    add_to(fastest_allowed, best_allowed);
    add_to(fastest, best);
    ++problems;
    engines += engines_of_one.size();
  }
};

std::string contents(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(ExitCode::config, "cannot read {}", path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The convolutions of a training step, and where their engines are planned and timed.
struct Lab {
  explicit Lab(const Question& question, const std::string& device_file)
      : device(device_file.empty() ? "" : contents(device_file)),
        backend(device.empty() ? cuda::make_backend_on_device({.tf32 = question.tf32()})
                               : cuda::make_backend_for_described_device(device, {.tf32 = question.tf32()})),
        problems(problems_of(
            Executable::compile(training_graph(question), *backend, compile_options(question, *backend)).graph(),
            question.tf32())),
        bench(device, most_tensor_bytes(problems)) {}
  const std::string device;
  const std::unique_ptr<Backend> backend;
  const std::vector<Counted> problems;
  Bench bench;
};

// The fastest that is allowed; without times the first. Null: none.
const Engine* best_of(const std::vector<Engine>& engines) {
  const Engine* best = nullptr;
  for (const Engine& engine : engines) {
    if (engine.allowed && (!best || (engine.ms >= 0 && (best->ms < 0 || engine.ms < best->ms)))) best = &engine;
  }
  return best;
}

// Of the problems that a fusion can take.
struct FusionTotals {
  size_t problems = 0, fused = 0;
  double fused_ms = 0, plain_ms = 0;  // of the fused ones; -1: not timed
};

void print_fusion(Fusion fusion, const Counted& counted, Bench& bench, FusionTotals& totals) {
  const std::vector<Engine> engines = bench.engines(counted.problem, fusion);
  const Engine* const best = best_of(engines);
  ++totals.problems;
  const std::vector<Engine> plain_engines = bench.engines(counted.problem);
  const Engine* const plain = best_of(plain_engines);
  const double plain_ms = plain ? plain->ms : -1;
  fmt::print("{}\t{}\t{}\t{}\t{}\t{:.0f}\t{:.4f}\t{:.4f}\n", kFusionNames[static_cast<size_t>(fusion)],
             counted.problem.to_string(), counted.count, engines.size(), best ? best->name : "none",
             best ? static_cast<double>(best->workspace_bytes) * 1e-6 : -1, best ? best->ms : -1, plain_ms);
  std::fflush(stdout);
  if (!best) return;
  ++totals.fused;
  const auto add_to = [&](double& sum, double ms) { sum = sum < 0 || ms < 0 ? -1 : sum + counted.count * ms; };
  add_to(totals.fused_ms, best->ms);
  add_to(totals.plain_ms, plain_ms);
}

void print_left_out(size_t problems) {
  if (problems > 0) fmt::print(stderr, "left out\t{}\n", problems);
}

void print_engine(const Counted& counted, const Engine& engine, const std::string& chosen) {
  fmt::print("{}\t{}\t{}\t{}\t{}\t{:.0f}\t{:.4f}\n", counted.problem.to_string(), counted.count, engine.name,
             engine.name == chosen ? "taken" : "", engine.allowed ? "allowed" : "barred",
             static_cast<double>(engine.workspace_bytes) * 1e-6, engine.ms);
  std::fflush(stdout);
}

}  // namespace

void time_fusions(const Question& question, const std::string& device_file) {
  Lab lab(question, device_file);
  fmt::print("fusion\tproblem\tlayers\tengines\tengine\tworkspace_MB\tms\tplain_ms\n");
  size_t left_out = 0;
  for (size_t i = 1; i < std::size(kFusionNames); ++i) {
    const auto fusion = static_cast<Fusion>(i);
    FusionTotals totals;
    for (const Counted& counted : lab.problems) {
      if (counted.problem.kind != kind_of(fusion)) continue;
      if (question.time_is_over()) {
        ++left_out;
      } else {
        print_fusion(fusion, counted, lab.bench, totals);
      }
    }
    fmt::print(stderr, "fusion\t{}\t{}\t{}\t{:.4f}\t{:.4f}\n", kFusionNames[i], totals.problems, totals.fused,
               totals.fused_ms, totals.plain_ms);
  }
  print_left_out(left_out);
}

void time_engines(const Question& question, const std::string& device_file) {
  Lab lab(question, device_file);
  const std::string& device = lab.device;
  Totals totals;
  std::exception_ptr failure;
  cudnnHandle_t handle = nullptr;
  if (device.empty()) require(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS, "cuDNN makes no handle");
  fmt::print("problem\tlayers\tengine\ttaken\tallowed\tworkspace_MB\tms\n");
  try {
    cuda::ConvPlanner planner = device.empty() ? cuda::ConvPlanner(handle) : cuda::ConvPlanner(device);
    for (const Counted& counted : lab.problems) {
      if (question.time_is_over()) break;
      const std::string chosen = planner.plan(counted.problem)->name();
      const auto print = [&](const Engine& engine) { print_engine(counted, engine, chosen); };
      totals.add(lab.bench.engines(counted.problem, Fusion::none, print), chosen, counted.count);
    }
  } catch (const std::exception&) {
    failure = std::current_exception();  // the device may be lost, but the convolutions before are measured
  }
  if (handle && !failure) (void)cudnnDestroy(handle);
  fmt::print(stderr, "engines\t{}\t{}\t{:.4f}\t{:.4f}\t{:.4f}\t{:.4f}\n", totals.problems, totals.engines,
             totals.chosen, totals.first, totals.fastest_allowed, totals.fastest);
  print_left_out(lab.problems.size() - totals.problems);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep::lab
