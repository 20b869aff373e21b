// The one exception type of Lockstep, the documented exit codes, and fail(), the one way to throw.
#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace lockstep {

// Process exit codes; a public contract (docs/operations.md says what mpirun and srun make of each).
enum class ExitCode : int {
  ok = 0,
  internal = 1,    // a bug, or out of memory
  config = 2,      // configuration, command line, launcher mismatch, checkpoint that does not fit the model
  data = 3,        // training or validation data
  numerics = 4,    // non-finite loss or gradient
  checkpoint = 5,  // checkpoint could not be written or read
  stalled = 6,     // a rank stopped making progress
  stopped = 75,    // stopped on request with the state saved: requeue me
};

// A failure and its exit code. `what()` is one or two sentences for the user: what is wrong, with which rank, file or
// key, and what to do. `where()` is for developers and printed only for internal errors.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message, std::source_location where = std::source_location::current())
      : std::runtime_error(message), code_(code), where_(where) {}
  ExitCode code() const { return code_; }
  const std::source_location& where() const { return where_; }

 private:
  ExitCode code_;
  std::source_location where_;
};

// Returns the text to print for an error. That of an internal error, which is for developers, names the source line.
std::string message_of(const Error& error);

// A checked format string that remembers where it was written.
template <class... Args>
struct FormatAt {
  template <class S>
  consteval FormatAt(const S& text_, std::source_location where_ = std::source_location::current())
      : text(text_), where(where_) {}
  fmt::format_string<Args...> text;
  std::source_location where;
};

// Throws Error. Example: fail(ExitCode::data, "{}: record {} has a wrong checksum", path, record);
template <class... Args>
[[noreturn]] void fail(ExitCode code, FormatAt<std::type_identity_t<Args>...> format, Args&&... args) {
  throw Error(code, fmt::format(format.text, std::forward<Args>(args)...), format.where);
}

// Checks an invariant of our own code. A violation is a bug (ExitCode::internal), never a user's mistake.
template <class... Args>
void require(bool condition, FormatAt<std::type_identity_t<Args>...> format, Args&&... args) {
  if (!condition) throw Error(ExitCode::internal, fmt::format(format.text, std::forward<Args>(args)...), format.where);
}

// The text of errno value `error`, thread-safe.
std::string errno_text(int error);

}  // namespace lockstep
