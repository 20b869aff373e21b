// The address of every value. Values that may share memory form alias classes (a reshape and its input; the result of
// an operation that works in place); each class has one address in an arena for the time from its first write to its
// last read.
#pragma once

#include <span>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/graph/graph.h"
#include "lockstep/graph/schedule.h"

namespace lockstep {

enum class Arena : uint8_t { none, parameters, copies, statistics, gradients, activations, external };

struct Placement {
  Arena arena = Arena::none;  // none: the value is never used
  int64_t offset_bytes = 0;   // external: which input
};

struct MemoryPlan {
  std::vector<Placement> values;      // by ValueId
  std::vector<int32_t> alias_class;   // by ValueId: the representative of its class
  std::vector<Placement> workspaces;  // by schedule position
  int64_t activation_bytes = 0;       // peak of everything that is not parameters, copies, statistics or gradients
  int64_t copy_bytes = 0;             // of Value::copy_of
};

struct PlanInput {
  const Graph& graph;
  const Schedule& schedule;
  const ParameterLayout& layout;
  std::span<const size_t> storage_bytes;    // by ValueId
  std::span<const size_t> workspace_bytes;  // by schedule position
};

// Greedy by size, lowest address that is free for the whole life of the class. All addresses are 64-byte aligned.
MemoryPlan plan_memory(const PlanInput& input);

// The moment of a plan at which most memory is in use.
struct MemoryPeak {
  struct Part {
    ValueId value = -1;  // the whole of its class; -1: the workspace of the step
    int64_t bytes = 0;
    int32_t first = 0, last = 0;  // schedule positions
  };
  int32_t position = 0;
  int64_t bytes = 0;        // in use; the arena may be larger by its gaps
  std::vector<Part> parts;  // largest first
};
MemoryPeak find_peak(const PlanInput& input, const MemoryPlan& plan);

// Proves that no two classes that live at the same time overlap, that all are inside the arena, and that within a class
// every value is read before another takes its place. Throws Error(internal) naming the values.
void verify_plan(const PlanInput& input, const MemoryPlan& plan);

}  // namespace lockstep
