// The names of the classes of a packed data set. A record contains only the name of its own label, and a class may have
// no records.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Writes lockstep_classes.txt to the directory, with one name per line in the order of the labels; nothing if there are
// no names. Throws Error(data) if the directory contains the names of other classes.
void write_class_names(const std::string& directory, const std::vector<std::string>& names);

// Returns the names for these input files; none unless all are in one directory that contains such a file.
std::vector<std::string> read_class_names(const std::vector<std::string>& files);

}  // namespace lockstep
