// Whether the output of this process goes to a terminal, and what that terminal can show.
#pragma once

#include <cstdio>

#include "lockstep/base/environment.h"

namespace lockstep {

// Whether descriptor 1 or 2 of this process leads to a terminal. Under mpirun, a rank's own output always looks like
// one (a pseudo-terminal that mpirun reads), so mpirun's output decides. A rank that a daemon started on another host
// has no terminal.
bool output_is_terminal(int descriptor);

// Returns a stream to standard output for results, the same at each call. From the first call on, the log goes to
// standard error.
std::FILE* take_standard_output();

// The columns of the terminal of standard output; a usual number if they are unknown.
int terminal_columns();

// Whether a terminal of this kind can redraw a line. With TERM "dumb" or missing, it knows no escape sequences.
bool moves_cursor(const EnvironmentLookup& environment);

// Whether the user of a terminal wants colors: not with NO_COLOR (https://no-color.org), nor with TERM "dumb" or
// missing. A rank on mpirun's host has mpirun's environment.
bool takes_colors(const EnvironmentLookup& environment);

}  // namespace lockstep
