// Initializes and finalizes MPI in this process, and aborts a job that cannot continue.
#pragma once

#include <string>

namespace lockstep {

// Initializes MPI with MPI_THREAD_MULTIPLE. A process has one MpiSession, owned by main; the main thread creates and
// destroys it. Everything that uses MPI must be destroyed before it.
//
// The destructor calls MPI_Finalize only after finish(). A rank that finalizes while another rank still waits for it
// hangs the whole job; without finish() the process exits with MPI initialized, and the launcher notices the exit.
class MpiSession {
 public:
  // Throws Error(config) when the MPI library does not offer MPI_THREAD_MULTIPLE. With `watch_launcher`, abort_job()
  // also makes the launcher end if MPI has not started by then.
  MpiSession(int& argc, char**& argv, bool watch_launcher = false);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  // Declares that every rank ends now, with the same exit code, so that the destructor may finalize.
  void finish() { agreed_ = true; }

  // Returns "Open MPI v4.1.4, ...", for the table that is printed at the start.
  static std::string library_version();

 private:
  bool agreed_ = false;
};

// Ends every rank of the job with this exit code. Code 0 becomes 1, because launchers report MPI_Abort(0) as success.
// May be called from any thread, whether or not MPI is initialized. If MPI_Abort does not return within five seconds,
// the process ends with _exit.
[[noreturn]] void abort_job(int exit_code) noexcept;

}  // namespace lockstep
