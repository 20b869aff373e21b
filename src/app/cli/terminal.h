// Where this process's output ends, and what may be shown there.
#pragma once

#include <cstdio>

#include "lockstep/comm/supervision/launcher.h"

namespace lockstep {

// Whether what this process writes to descriptor 1 or 2 ends in a terminal. Under mpirun a rank's own output always
// looks like one (a pseudo-terminal that mpirun reads), so mpirun's decides. A rank that a daemon started on another
// host has no terminal.
bool output_is_terminal(int descriptor);

// Returns a stream to standard output for results, the same at each call. From the first call on, what is logged goes
// to standard error.
std::FILE* take_standard_output();

// Columns of the terminal in which standard output ends; a usual number where it cannot be asked.
int terminal_columns();

// Whether a terminal of this kind can draw a line again: not where TERM is "dumb" or missing, which knows no escape
// sequences.
bool moves_cursor(const EnvironmentLookup& environment);

// Whether the person at a terminal takes colors: not with NO_COLOR (https://no-color.org), nor where TERM is "dumb" or
// missing. A rank beside mpirun has mpirun's environment.
bool takes_colors(const EnvironmentLookup& environment);

}  // namespace lockstep
