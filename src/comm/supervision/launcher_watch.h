// Ends a launcher that hangs: docs/adr/0016-a-process-ends-a-hanging-launcher.md.
#pragma once

namespace lockstep {

// Forks a process that waits five seconds for this rank's launcher (mpirun, or its daemon on this host) to exit, then
// sends it SIGTERM, and SIGKILL three seconds later. Does nothing if the parent process is not such a launcher.
void watch_launcher_end() noexcept;

}  // namespace lockstep
