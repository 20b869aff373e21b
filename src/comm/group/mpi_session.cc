#include "lockstep/comm/group/mpi_session.h"

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string_view>
#include <thread>

#include "comm/supervision/launcher_watch.h"
#include "lockstep/base/error.h"

namespace lockstep {

namespace {

constexpr unsigned kAbortSeconds = 5;

std::atomic<bool> watches_launcher{false};  // only while MPI starts

bool mpi_is_running() {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized && !finalized;
}

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv, bool watch_launcher) {
  int provided = MPI_THREAD_SINGLE;
  watches_launcher = watch_launcher;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  watches_launcher = false;
  if (provided < MPI_THREAD_MULTIPLE) {
    fail(ExitCode::config, "{}: MPI_THREAD_MULTIPLE is not available; use an MPI library built with thread support",
         library_version());
  }
}

MpiSession::~MpiSession() {
  if (agreed_) MPI_Finalize();
}

std::string MpiSession::library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string_view all(text.data(), static_cast<size_t>(length));
  return std::string(all.substr(0, all.find('\n')));
}

void abort_job(int exit_code) noexcept {
  const int code = exit_code == 0 ? static_cast<int>(ExitCode::internal) : exit_code;
  static std::atomic_flag aborting = ATOMIC_FLAG_INIT;
  const bool first = !aborting.test_and_set();
  // MPI_Abort may wait for a lock held by a thread that is stuck in MPI. SIGALRM ends the process even if no thread can
  // be started below.
  alarm(2 * kAbortSeconds);
  if (first && watches_launcher) watch_launcher_end();
  if (first && mpi_is_running()) {
    try {
      std::thread([code] {
        std::this_thread::sleep_for(std::chrono::seconds(kAbortSeconds));
        _exit(code);
      }).detach();
    } catch (...) {  // no thread could be started; the alarm ends the process instead
    }
    MPI_Abort(MPI_COMM_WORLD, code);
  } else if (!first) {
    std::this_thread::sleep_for(std::chrono::seconds(kAbortSeconds));  // another thread is aborting already
  }
  _exit(code);
}

}  // namespace lockstep
