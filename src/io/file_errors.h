// How the functions of io/file.h say what went wrong.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep {

// "PATH: cannot ACTION: the system's reason". `needed`: the bytes to be written. Called after a temporary is gone, so
// that what is free is what a retry has.
[[noreturn]] void fail_errno(const std::string& path, std::string_view action, ExitCode blame, int error,
                             size_t needed = 0);

// Why a directory cannot be made where a symbolic link on the way to it leads nowhere; else the system's reason.
std::string describe_no_directory(const std::string& path, int error);

// "a directory", "a pipe" and so on, of what is no regular file.
std::string_view kind_of_file(mode_t mode);

}  // namespace lockstep
