// The end of a launcher that does not end by itself. Open MPI 4.1's mpirun now and then hangs although all its ranks
// have ended, when one of them was suspended while it connected; the job would hold its nodes until the batch system's
// limit.
#pragma once

namespace lockstep {

// Leaves a process behind that gives this rank's launcher (mpirun, or its daemon on this host) some seconds to end,
// then sends it SIGTERM, and SIGKILL after some more. Does nothing where the parent is no such program. May be called
// by any thread, whatever locks the others hold.
void watch_launcher_end() noexcept;

}  // namespace lockstep
