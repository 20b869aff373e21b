// Terminates a launcher that hangs. Open MPI 4.1's mpirun occasionally hangs after all its ranks have exited, if one of
// them was suspended while it connected; the job would then occupy its nodes until the time limit of the batch system.
#pragma once

namespace lockstep {

// Forks a process that waits five seconds for this rank's launcher (mpirun, or its daemon on this host) to exit, then
// sends it SIGTERM, and SIGKILL three seconds later. Does nothing if the parent process is not such a launcher. May be
// called from any thread, whatever locks other threads hold.
void watch_launcher_end() noexcept;

}  // namespace lockstep
