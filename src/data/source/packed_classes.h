// The names of a packed data set's classes: records hold the name of their own label alone, and a class may have none.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// lockstep_classes.txt of the directory: one name a line, in label order. Nothing is written where there are no names.
// Throws Error(data) when the directory has the names of other classes.
void write_class_names(const std::string& directory, const std::vector<std::string>& names);

// What that file says of these inputs: nothing unless all lie in one directory that has it.
std::vector<std::string> read_class_names(const std::vector<std::string>& files);

}  // namespace lockstep
