#include "train/audit.h"

#include "lockstep/comm/group/parameter_audit.h"
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

std::string parameter_at(const Program& program, double place) {
  for (ParameterId id : program.training().schedule().gradient_order) {
    const auto begin = static_cast<double>(program.layout().offset[static_cast<size_t>(id)]);
    const auto count = static_cast<double>(program.parameters()[id].shape.elements());
    if (place >= begin && place < begin + count) return program.parameters()[id].name;
  }
  return "an unknown parameter";
}

}  // namespace lockstep
