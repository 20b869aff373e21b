// Detects whether the output of this process is shown in a terminal, and what that terminal supports.
#pragma once

#include "lockstep/comm/supervision/launcher.h"

namespace lockstep {

// Returns whether descriptor 1 or 2 of this process is shown in a terminal and goes nowhere else. Under mpirun, a
// rank's own output always looks like a terminal (a pseudo-terminal that mpirun reads), so mpirun's output decides. The
// result is false if mpirun was asked to tag lines or to write them to files, and on a rank that a daemon on another
// host started.
bool output_is_terminal(int descriptor);

// Returns the width of the terminal that shows standard output, or a default width if it is unknown.
int terminal_columns();

// Returns whether the terminal can redraw a line. A terminal without escape sequences cannot: TERM is "dumb" or
// missing.
bool moves_cursor(const EnvironmentLookup& environment);

// Returns whether colors may be used: not if NO_COLOR is set (https://no-color.org), or if TERM is "dumb" or missing. A
// rank on mpirun's host has mpirun's environment.
bool takes_colours(const EnvironmentLookup& environment);

}  // namespace lockstep
