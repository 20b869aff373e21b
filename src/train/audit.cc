#include "lockstep/train/audit.h"

#include <algorithm>
#include <cmath>

#include "lockstep/dist/parameter_audit.h"
#include "lockstep/train/host_state.h"

namespace lockstep {

void audit_parameters(ProcessGroup& group, const Program& program, double wait_seconds) {
  const ParameterTable& table = program.parameters();
  std::vector<AuditedRange> ranges;
  const HostState state(program);
  state.download();
  for (ParameterId id = 0; id < table.size(); ++id) {
    ranges.push_back({table[id].name, std::as_bytes(state.parameter(id))});
  }
  audit_ranges(group, {"the comparison of parameters over ranks", wait_seconds}, ranges);
}

std::string first_bad_gradient(const Program& program) {
  if (!program.backend().host_addressable()) return "an unknown parameter";
  const float* gradients = program.state().gradients.as<float>();
  for (ParameterId id : program.training().schedule().gradient_order) {
    const float* g = gradients + program.training().layout().offset[static_cast<size_t>(id)];
    const auto count = program.parameters()[id].shape.elements();
    if (!std::all_of(g, g + count, [](float x) { return std::isfinite(x); })) return program.parameters()[id].name;
  }
  return "an unknown parameter";
}

}  // namespace lockstep
