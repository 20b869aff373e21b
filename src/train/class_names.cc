#include "lockstep/train/class_names.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"

namespace lockstep {

std::string printable_name(std::string_view name) {
  std::string text;
  for (size_t backslash; (backslash = name.find('\\')) != std::string_view::npos;) {
    text += printable(name.substr(0, backslash), backslash) + "\\x5c";
    name.remove_prefix(backslash + 1);
  }
  return text + printable(name, name.size());
}

std::vector<std::string> name_outputs(const std::vector<std::string>& label_names, int64_t label_offset) {
  std::vector<std::string> outputs;
  if (label_names.empty()) return outputs;
  outputs.resize(std::max<int64_t>(label_offset, 0));
  const auto skipped = std::clamp<int64_t>(-label_offset, 0, std::ssize(label_names));
  std::transform(label_names.begin() + skipped, label_names.end(), std::back_inserter(outputs), printable_name);
  return outputs;
}

bool are_part_of(const std::vector<std::string>& found, const std::vector<std::string>& expected) {
  return !found.empty() && found.size() < expected.size() && std::ranges::all_of(found, [&](const std::string& name) {
    return std::ranges::find(expected, name) != expected.end();
  });
}

void require_same_classes(const NamedClasses& expected, const NamedClasses& found) {
  const auto [one, other] = std::ranges::mismatch(expected.names, found.names);
  if (one == expected.names.end() || other == found.names.end()) return;
  fail(ExitCode::data,
       "class {} is '{}' in {} and '{}' in {}: the labels would mean other classes. Give both the same class "
       "directories "
       "(an empty one keeps its class's number)",
       one - expected.names.begin(), printable(*one), printable(expected.where), printable(*other),
       printable(found.where));
}

}  // namespace lockstep
