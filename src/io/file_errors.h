// The error messages of the functions of io/file.h.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

// Throws "PATH: cannot ACTION: the system's reason". `needed` is the number of bytes to be written; the temporary file
// must have been removed before, so that the message states the space that a retry would have.
[[noreturn]] void fail_errno(const std::string& path, std::string_view action, ExitCode blame, int error,
                             size_t needed = 0);

// Says why a directory cannot be created: a symbolic link on its path has no target, or else the system's reason.
std::string describe_no_directory(const std::string& path, int error);

// Names the kind of a file that is not a regular one: "a directory", "a pipe", ...
std::string_view kind_of_file(mode_t mode);

}  // namespace lockstep
