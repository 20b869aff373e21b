// Names of threads, as ps -L, top -H, perf and debuggers show them.
#pragma once

namespace lockstep {

// Names the calling thread; at most 15 characters. The main thread's name is that of the process.
void name_thread(const char* name);

}  // namespace lockstep
