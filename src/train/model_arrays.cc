#include "lockstep/train/model_arrays.h"

#include <fmt/format.h>

namespace lockstep {

std::vector<CheckpointArray> model_arrays(const ParameterTable& table, const ParameterLayout& layout,
                                          const ModelState& state, OptimizerKind optimizer) {
  std::vector<CheckpointArray> arrays;
  auto add = [&](const std::string& directory, const Buffer& trained, const Buffer* statistics) {
    for (ParameterId id = 0; id < table.size(); ++id) {
      const Buffer* arena = table[id].trained() ? &trained : statistics;
      if (!arena) continue;
      arrays.push_back({directory + "/" + table[id].name, table[id].shape, arena->as<float>() + layout.offset[id]});
    }
  };
  add("/model", state.parameters, &state.statistics);
  if (state.average_parameters.data()) add("/ema", state.average_parameters, &state.average_statistics);
  const OptimizerSlots& slots = optimizer_slots(optimizer);
  for (size_t i = 0; i < state.slots.size(); ++i)
    add(fmt::format("/optimizer/{}", slots.slots[i]), state.slots[i], nullptr);
  return arrays;
}

}  // namespace lockstep
