#include "train/audit.h"

#include "lockstep/comm/group/parameter_audit.h"
#include "lockstep/train/host_state.h"

namespace lockstep {

void audit_parameters(ProcessGroup& group, const CompiledModel& model) {
  const ParameterTable& table = model.parameters();
  std::vector<AuditedRange> ranges;
  const HostState state(model);
  state.download();
  for (ParameterId id = 0; id < table.size(); ++id) {
    ranges.push_back({table[id].name, std::as_bytes(state.parameter(id))});
  }
  audit_ranges(group, {"the comparison of parameters over ranks"}, ranges);
}

std::string parameter_at(const CompiledModel& model, double place) {
  for (ParameterId id : model.training().schedule().gradient_order) {
    const auto begin = static_cast<double>(model.layout().offset[id]);
    const auto count = static_cast<double>(model.parameters()[id].shape.elements());
    if (place >= begin && place < begin + count) return model.parameters()[id].name;
  }
  return "an unknown parameter";
}

}  // namespace lockstep
