// The names of a model's outputs, as its data sets give them. Data of another list of classes look like any other data
// while every label means something else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// UTF-8 of any name: bytes that are none, control characters and the backslash become \xNN.
std::string printable_name(std::string_view name);

// Names in the order of the model's outputs, printable, from those of the labels as stored: label i is output i +
// `label_offset`. Outputs before the first label have empty names.
std::vector<std::string> name_outputs(const std::vector<std::string>& label_names, int64_t label_offset);

// Where a list of names comes from: "data.validation", a checkpoint's path.
struct NamedClasses {
  std::string where;
  const std::vector<std::string>& names;  // empty: not known, which fits everything
};

// Whether `found` are some, but not all, of the classes `expected`: such data can take their labels
// (DataSource::follow_classes).
bool are_part_of(const std::vector<std::string>& found, const std::vector<std::string>& expected);

// Throws Error(data) that names the first output which is another class in `found` than in `expected`. A list may be
// longer than the other.
void require_same_classes(const NamedClasses& expected, const NamedClasses& found);

}  // namespace lockstep
