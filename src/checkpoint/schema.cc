#include "lockstep/checkpoint/schema.h"

#include <map>
#include <string_view>

#include "lockstep/base/printable.h"
#include "lockstep/checkpoint/misfit.h"

namespace lockstep {
namespace {

// The layer "fc" contains fc.weight but not fc2.weight.
bool is_or_belongs_to(std::string_view name, std::string_view layer) {
  return name.starts_with(layer) && (name.size() == layer.size() || name[layer.size()] == '.');
}

bool same_shape(const Shape& stored, const Shape& wanted) {
  return stored == wanted || (wanted.rank() == 0 && stored == Shape({1}));
}

[[noreturn]] void fail_group(const CheckpointReader& file, const SchemaOptions& options) {
  std::string hint = "it was not written with it";
  if (options.group.starts_with("/optimizer/")) {
    std::vector<std::string> slots = file.optimizer_slots();
    for (std::string& slot : slots) slot = printable(slot);
    hint = slots.empty()
               ? "it has no optimizer state, so training cannot go on from it exactly"
               : fmt::format("its optimizer's slots are {}", printable(fmt::format("{}", fmt::join(slots, ", "))));
  }
  fail(ExitCode::config, "{}: has no {}; {}", file.path(), options.group, hint);
}

}  // namespace

std::string array_path(const std::string& group, const std::string& name) {
  if (group.empty()) return name;
  return group == "/" ? "/" + name : group + "/" + name;
}

std::vector<ParameterId> match_schema(const ParameterTable& table, const CheckpointReader& file,
                                      const SchemaOptions& options) {
  if (!file.has(options.group)) fail_group(file, options);
  std::map<std::string, Shape> stored;
  for (const CheckpointReader::Array& array : file.arrays(options.group)) stored[array.path] = array.shape;
  return match_schema(table, std::move(stored), file.path(), options);
}

std::vector<ParameterId> match_schema(const ParameterTable& table, std::map<std::string, Shape> stored,
                                      const std::string& file, const SchemaOptions& options) {
  std::map<std::string, bool> exclusions;  // and whether they match a parameter
  for (const std::string& layer : options.exclude) exclusions[layer] = false;
  const auto is_excluded = [&](std::string_view name) {
    bool excluded = false;
    for (auto& [layer, used] : exclusions) {
      if (is_or_belongs_to(name, layer)) excluded = used = true;
    }
    return excluded;
  };
  std::vector<ParameterId> matched;
  Misfit misfit;
  for (ParameterId id = 0; id < table.size(); ++id) {
    const Parameter& parameter = table[id];
    if (options.trained_only && !parameter.trained()) continue;
    const std::string path = array_path(options.group, parameter.name);
    const auto found = stored.extract(path);
    if (is_excluded(parameter.name)) continue;
    if (!found) {
      misfit.missing.push_back(fmt::format("{} is missing, the model wants {}", path, parameter.shape.to_string()));
    } else if (!same_shape(found.mapped(), parameter.shape)) {
      misfit.different.push_back(fmt::format("{} is {} in the file and {} in the model", path,
                                             found.mapped().to_string(), parameter.shape.to_string()));
    } else {
      matched.push_back(id);
    }
  }
  for (const auto& [path, shape] : stored) {
    if (is_excluded(path.substr(array_path(options.group, "").size()))) continue;
    misfit.extra.push_back(fmt::format("{} {} is not in the model", printable(path), shape.to_string()));
  }
  for (const auto& [layer, used] : exclusions) {
    if (!used) misfit.other.push_back(fmt::format("{} is to be left out, but the model has no such layer", layer));
  }
  if (!misfit.none()) fail(ExitCode::config, "{}: does not fit the model: {}", file, misfit.text());
  return matched;
}

}  // namespace lockstep
