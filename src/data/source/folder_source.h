// Image folders: <root>/<class>/<image>.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/source/data_source.h"

namespace lockstep {

// Whether it is one, or a link to one.
bool is_directory(const std::string& path);

// The class directories (with a final '/') and images under `roots`. Classes are the directories whose names do not
// begin with a dot; images are files that end in .jpg, .jpeg, .jpe or .png, whatever the case. Everything else is
// ignored, and counted in one log line. Empty classes are listed, so they keep their numbers, with one warning for all.
// Throws Error(data) when a root has no class directory, no image in any, or a link among the classes that cannot be
// followed.
std::vector<std::string> list_image_folders(const std::vector<std::string>& roots);

// Opens what list_image_folders() listed. Classes are numbered in the order of their names' bytes; directories of one
// name under several roots are one class.
std::unique_ptr<DataSource> open_folder(const DataSourceOptions& options);

}  // namespace lockstep
