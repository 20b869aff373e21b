#include "app/end_job.h"

#include <new>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/dist/mpi_session.h"

namespace lockstep {
namespace {

struct Ending {
  ExitCode code = ExitCode::internal;
  std::string message;
};

Ending ending_of_current_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.code(), message_of(error)};
  } catch (const std::bad_alloc&) {
    return {ExitCode::internal, "out of memory"};
  } catch (const std::exception& error) {
    return {ExitCode::internal, error.what()};
  } catch (...) {
    return {ExitCode::internal, "an exception of unknown type"};
  }
}

}  // namespace

void end_job(const std::function<void()>& last) noexcept {
  ExitCode code = ExitCode::internal;
  try {
    const Ending ending = ending_of_current_exception();
    code = ending.code;
    log_error("{}", ending.message);
    log_repeated_warnings();
    if (last) last();
  } catch (...) {  // no memory for words, say; the others must not wait all the same
  }
  abort_job(static_cast<int>(code));
}

}  // namespace lockstep
