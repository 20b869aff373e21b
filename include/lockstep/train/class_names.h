// The names of a model's outputs, which come from its data sets. They detect data with another list of classes, which
// would be accepted otherwise although every label has another meaning.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Returns a name as printable UTF-8. Invalid bytes, control characters and backslashes become \xNN.
std::string printable_name(std::string_view name);

// Returns printable names in the order of the model's outputs. `label_names` are indexed by stored label; label i is
// output i + `label_offset`. Outputs before the first label have empty names.
std::vector<std::string> name_outputs(const std::vector<std::string>& label_names, int64_t label_offset);

// A list of class names and its origin.
struct NamedClasses {
  std::string where;                      // "data.validation", or the path of a checkpoint
  const std::vector<std::string>& names;  // empty if unknown, which is compatible with any list
};

// Returns whether `found` is a proper subset of `expected`. Data with such classes can use the labels of `expected`
// (DataSource::follow_classes).
bool are_part_of(const std::vector<std::string>& found, const std::vector<std::string>& expected);

// Throws Error(data), which names the first output whose class differs between `found` and `expected`. One list may be
// longer than the other.
void require_same_classes(const NamedClasses& expected, const NamedClasses& found);

}  // namespace lockstep
