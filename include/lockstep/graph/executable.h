// A compiled graph: a flat list of "run this kernel on these addresses". Knows nothing of models.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/graph/graph.h"
#include "lockstep/graph/memory_plan.h"
#include "lockstep/graph/schedule.h"

namespace lockstep {

// The addresses of an executable's inputs: ExternalInput has their types and shapes. Null if the graph does not read
// one.
struct ExternalInputs {
  const void* images = nullptr;
  const void* labels = nullptr;
  const void* weights = nullptr;
  const void* step = nullptr;
  const void* loss_scale = nullptr;
  const void* ids = nullptr;
  const void* values = nullptr;
  const void* pixels = nullptr;
  const void* changes = nullptr;

  const void*& operator[](ExternalInput input);
  const void* operator[](ExternalInput input) const;
};

// The memory an executable runs on, by base address; owned by the caller and alive while it runs.
struct Arenas {
  void* parameters = nullptr;   // layout().trained_elements elements
  void* copies = nullptr;       // plan().copy_bytes, zero at first: see Executable::copy_weights
  void* statistics = nullptr;   // layout().statistic_elements
  void* gradients = nullptr;    // trained_elements, then moment_elements
  void* activations = nullptr;  // plan().activation_bytes
  ExternalInputs external{};
};

// Sums `elements` values over all ranks, in place; later work on the stream sees the result. Called for each
// SumOverRanks of a graph, in one order on all ranks; `name` is the node's, for messages.
using RankSum = std::function<void(Stream& stream, void* values, int64_t elements, const std::string& name)>;

struct CompileOptions {
  bool rewrites = true;
  int synchronized_ranks = 1;  // whose samples batch norms normalize together; above 1, running needs a RankSum
  bool training = true;        // add gradients
  DType compute = DType::f32;  // element type of the layers (lower_precision)
  // If images arrive as bytes: the operation that makes the model's input from them (feed_pixels); its `to` is ignored.
  std::optional<PreparePixels> pixels = {};
  // Recompute normalized activations in the backward pass where the backend finds it cheap; a rewrite like the others.
  bool recompute = true;
  bool recompute_convolutions = false;  // also convolutions with few multiply-adds per value
  // The layout of the parameters; null: the order in which their gradients finish (table order without training).
  const ParameterLayout* layout = nullptr;
};

// Applies the rewrites that pay on this backend; returns their names, with the number of matches.
std::vector<std::pair<std::string, int>> apply_rewrites(Graph& graph, const Backend& backend);

// After schedule position `position` has run, all gradients below element `end` of the gradient arena are final.
struct GradientMark {
  int32_t position = 0;
  int64_t end = 0;
};

// Immutable after compile(); one thread at a time may run it. The backend must outlive it.
class Executable {
 public:
  // The pipeline: rewrite, synchronize_batch_norms, feed_pixels, lower_precision, add_gradients, fuse_conv_norm,
  // sum_into_pool, sum_behind_pool, sum_normalized, gather_casts, recompute, choose_formats, alias_concat,
  // make_schedule, compile kernels, plan_memory, verify_plan.
  static Executable compile(Graph graph, const Backend& backend, const CompileOptions& options);

  // Recomputes the copies of the parameters. Required before forward() unless an update wrote the parameters last.
  void copy_weights(Stream& stream, const Arenas& arenas) const;
  void forward(Stream& stream, const Arenas& arenas, const RankSum& sum = {}) const;
  // Runs the backward part; `after(position)` is called as soon as the node at that position has been enqueued.
  void backward(Stream& stream, const Arenas& arenas, const std::function<void(int32_t position)>& after,
                const RankSum& sum = {}) const;

  // Returns the memory of a value; null if the schedule never uses it.
  void* address(ValueId value, const Arenas& arenas) const;

  const Graph& graph() const { return graph_; }
  const Schedule& schedule() const { return schedule_; }
  const ParameterLayout& layout() const { return layout_; }
  const MemoryPlan& plan() const { return plan_; }
  const Kernel& kernel(size_t position) const { return *steps_[position].kernel; }
  std::vector<GradientMark> gradient_marks() const;
  // Names of the rewrites that applied, with the number of matches.
  const std::vector<std::pair<std::string, int>>& applied_rewrites() const { return applied_; }

 private:
  struct Step {
    NodeId node = -1;
    std::unique_ptr<Kernel> kernel;
    std::vector<Placement> inputs, outputs;
    Placement workspace;
  };
  Executable() = default;
  std::vector<Step> compile_kernels(const Backend& backend, const std::vector<NodeId>& nodes) const;
  void place_operands(std::vector<Step>& steps) const;
  void run(const Step& step, Stream& stream, const Arenas& arenas, const RankSum& sum) const;

  Graph graph_;
  Schedule schedule_;
  ParameterLayout layout_;
  MemoryPlan plan_;
  std::vector<Step> steps_;    // by schedule position
  std::vector<Step> weights_;  // by Schedule::weights
  std::vector<std::pair<std::string, int>> applied_;
};

// Returns the layout of `table` inside arenas laid out for `from`, which must have all its parameters by name and
// shape. An evaluation graph, which has no auxiliary head, uses it to read the arenas of the training graph.
ParameterLayout adopt_layout(const ParameterTable& table, const ParameterTable& from, const ParameterLayout& layout);

}  // namespace lockstep
