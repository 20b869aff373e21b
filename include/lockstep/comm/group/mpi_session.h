// The life of MPI in this process: one MpiSession, owned by main, and the one way to end a job that cannot go on.
#pragma once

#include <string>

namespace lockstep {

// Starts MPI with MPI_THREAD_MULTIPLE on the calling thread, which must be the main thread and destroys it too.
// Everything that uses MPI must be destroyed before it.
//
// An ending is agreed when every rank reaches it. Only then is MPI finalized: a rank that finalizes while another
// still waits for it hangs the whole job, so without finish() the destructor leaves MPI alone and the launcher
// notices the exit.
class MpiSession {
 public:
  // Throws Error(config) when the MPI library does not offer MPI_THREAD_MULTIPLE.
  MpiSession(int& argc, char**& argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // States that all ranks end here, with the same exit code; the destructor then finalizes.
  void finish() { agreed_ = true; }

  // "Open MPI v4.1.4, ...": for the table printed at the start.
  static std::string library_version();

 private:
  bool agreed_ = false;
};

// Ends every rank of the job with this exit code (0 becomes 1: a launcher takes MPI_Abort(0) for success). May be
// called from any thread, with or without MPI running. Leaves by _exit when MPI_Abort has not returned in five seconds.
[[noreturn]] void abort_job(int exit_code) noexcept;

}  // namespace lockstep
