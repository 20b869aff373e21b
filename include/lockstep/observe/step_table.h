// A table of the time of a step by operation, compared with the highest rates of the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/graph/executable.h"
#include "lockstep/observe/step_profile.h"

namespace lockstep {

// Highest rates that a machine was seen to reach.
struct MachineRates {
  double operations_per_second = 0;  // a product's multiplications and additions
  double bytes_per_second = 0;       // read and written
};

// One operation of the graph, or other work of a step. All figures are of one step.
struct StepTableRow {
  std::string part;                       // one of StepTable::parts
  std::string name;                       // of the node or of the other work
  std::string operation, implementation;  // empty: not an operation of the graph
  double seconds = 0;
  double operations = 0, bytes = 0;  // as for MachineRates; an operation with a product counts as operations alone
};

struct StepTable {
  struct Part {
    std::string name;  // "forward", "backward", "update", "all-reduce", "data", "save", "between steps", "other"
    double seconds = 0;
  };
  int64_t steps = 0;   // number of steps over which these are means
  double seconds = 0;  // of a step: the sum of the parts, and of the rows
  std::vector<Part> parts;
  std::vector<StepTableRow> rows;  // the costliest first
};

// `times` are those of `steps` steps that ran `executable` on `backend`.
StepTable make_step_table(std::span<const SpanTime> times, int64_t steps, const Executable& executable,
                          const Backend& backend);

// One line for the parts, and a table of the `most` costliest rows. `peak`: adds the share of it that each row reaches.
std::vector<std::string> to_lines(const StepTable& table, size_t most, const std::optional<MachineRates>& peak);

// All rows, as JSON that docs/watching.md describes.
std::string to_json(const StepTable& table, const std::optional<MachineRates>& peak);

}  // namespace lockstep
