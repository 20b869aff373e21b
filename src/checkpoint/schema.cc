#include "lockstep/checkpoint/schema.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace lockstep {
namespace {

// "fc.weight" is the parameter fc.weight and belongs to the layer fc; "fc" leaves fc2.weight alone.
bool is_or_belongs_to(std::string_view name, std::string_view layer) {
  return name.starts_with(layer) && (name.size() == layer.size() || name[layer.size()] == '.');
}

class Exclusions {
 public:
  explicit Exclusions(const std::vector<std::string>& layers) {
    for (const std::string& layer : layers) used_[layer] = false;
  }
  bool covers(std::string_view name) {
    bool covered = false;
    for (auto& [layer, used] : used_) {
      if (is_or_belongs_to(name, layer)) covered = used = true;
    }
    return covered;
  }
  void add_unused(std::vector<std::string>& problems) const {
    for (const auto& [layer, used] : used_) {
      if (!used) problems.push_back(fmt::format("{} is to be left out, but the model has no such layer", layer));
    }
  }

 private:
  std::map<std::string, bool> used_;
};

bool same_shape(const Shape& stored, const Shape& wanted) {
  return stored == wanted || (wanted.rank() == 0 && stored == Shape({1}));
}

[[noreturn]] void fail_group(const CheckpointReader& file, const SchemaOptions& options) {
  std::string hint = "it was not written with it";
  if (options.group.starts_with("/optimizer/")) {
    const std::vector<std::string> slots = file.optimizer_slots();
    hint = slots.empty() ? "it has no optimizer state, so training cannot go on from it exactly"
                         : fmt::format("its optimizer's slots are {}", fmt::join(slots, ", "));
  }
  fail(ExitCode::config, "{}: has no {}; {}", file.path(), options.group, hint);
}

[[noreturn]] void fail_mismatch(const CheckpointReader& file, const std::vector<std::string>& problems) {
  constexpr size_t kShown = 10;
  const size_t shown = std::min(problems.size(), kShown);
  std::string text = fmt::format("{}", fmt::join(problems.begin(), problems.begin() + static_cast<long>(shown), "; "));
  if (problems.size() > shown) text += fmt::format("; and {} more", problems.size() - shown);
  fail(ExitCode::config, "{}: does not fit the model: {}", file.path(), text);
}

}  // namespace

std::string array_path(const std::string& group, const std::string& name) {
  return group == "/" ? "/" + name : group + "/" + name;
}

std::vector<ParameterId> match_schema(const ParameterTable& table, const CheckpointReader& file,
                                      const SchemaOptions& options) {
  if (!file.has(options.group)) fail_group(file, options);
  std::map<std::string, Shape> stored;
  for (const CheckpointReader::Array& array : file.arrays(options.group)) stored[array.path] = array.shape;

  Exclusions excluded(options.exclude);
  std::vector<ParameterId> matched;
  std::vector<std::string> problems;
  for (ParameterId id = 0; id < table.size(); ++id) {
    const Parameter& parameter = table[id];
    if (options.trained_only && !parameter.trained()) continue;
    const std::string path = array_path(options.group, parameter.name);
    const auto found = stored.extract(path);
    if (excluded.covers(parameter.name)) continue;
    if (!found) {
      problems.push_back(fmt::format("{} is missing, the model wants {}", path, parameter.shape.to_string()));
    } else if (!same_shape(found.mapped(), parameter.shape)) {
      problems.push_back(fmt::format("{} is {} in the file and {} in the model", path, found.mapped().to_string(),
                                     parameter.shape.to_string()));
    } else {
      matched.push_back(id);
    }
  }
  for (const auto& [path, shape] : stored) {
    if (excluded.covers(path.substr(options.group == "/" ? 1 : options.group.size() + 1))) continue;
    problems.push_back(fmt::format("{} {} is not in the model", path, shape.to_string()));
  }
  excluded.add_unused(problems);
  if (!problems.empty()) fail_mismatch(file, problems);
  return matched;
}

}  // namespace lockstep
