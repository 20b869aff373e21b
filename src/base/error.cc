#include "lockstep/base/error.h"

#include <system_error>

namespace lockstep {

std::string message_of(const Error& error) {
  if (error.code() != ExitCode::internal) return error.what();
  return fmt::format("{} [{}:{}]", error.what(), error.where().file_name(), error.where().line());
}

std::string errno_text(int error) { return std::generic_category().message(error); }

}  // namespace lockstep
