#include "lockstep/tensor/parameter_table.h"

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

int64_t round_up(int64_t value) {
  return (value + kParameterAlignment - 1) / kParameterAlignment * kParameterAlignment;
}

}  // namespace

ParameterId ParameterTable::add(Parameter parameter) {
  const ParameterId id = size();
  const bool fresh = by_name_.emplace(parameter.name, id).second;
  require(fresh, "parameter \"{}\" is declared twice", parameter.name);
  parameters_.push_back(std::move(parameter));
  return id;
}

ParameterId ParameterTable::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? -1 : found->second;
}

int64_t ParameterTable::trained_elements() const {
  int64_t sum = 0;
  for (const Parameter& p : parameters_) sum += p.trained() ? p.shape.elements() : 0;
  return sum;
}

std::vector<ParameterId> trained_in_table_order(const ParameterTable& table) {
  std::vector<ParameterId> order;
  for (ParameterId id = 0; id < table.size(); ++id) {
    if (table[id].trained()) order.push_back(id);
  }
  return order;
}

ParameterLayout lay_out_parameters(const ParameterTable& table, std::span<const ParameterId> order,
                                   std::span<const std::vector<ParameterId>> groups) {
  ParameterLayout layout;
  layout.offset.assign(table.size(), -1);
  std::vector<const std::vector<ParameterId>*> group_of(layout.offset.size(), nullptr);
  for (const auto& group : groups) {
    for (ParameterId id : group) group_of[id] = &group;
  }
  auto place = [&](ParameterId id) {
    int64_t& offset = layout.offset[id];
    require(table[id].trained() && offset < 0, "parameter \"{}\" is laid out twice", table[id].name);
    offset = layout.trained_elements;
    layout.trained_elements += table[id].shape.elements();
  };
  for (ParameterId id : order) {
    const auto* group = group_of[id];
    if (group && id != group->front() && layout.offset[group->front()] >= 0) continue;
    layout.trained_elements = round_up(layout.trained_elements);
    if (!group) {
      place(id);
    } else if (layout.offset[group->front()] < 0) {
      for (ParameterId member : *group) place(member);
    }
  }
  layout.trained_elements = round_up(layout.trained_elements);
  for (ParameterId id = 0; id < table.size(); ++id) {
    int64_t& offset = layout.offset[id];
    if (table[id].trained()) {
      require(offset >= 0, "parameter \"{}\" was not laid out", table[id].name);
      continue;
    }
    offset = layout.statistic_elements;
    layout.statistic_elements = round_up(offset + table[id].shape.elements());
  }
  return layout;
}

}  // namespace lockstep
