#include "test/fuzz/fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"

namespace lockstep::fuzz {
namespace detail {

void end_with(const char* kind, std::string_view message) {
  std::fprintf(stderr, "%s: %.*s\n", kind, static_cast<int>(message.size()), message.data());
  std::abort();
}

void check_error(const std::exception& error) {
  const auto* expected = dynamic_cast<const Error*>(&error);
  if (!expected) end_with("an exception that is no Error", error.what());
  if (expected->code() == ExitCode::internal) end_with("an internal error", message_of(*expected));
  require_printable(error.what());
}

}  // namespace detail

void require_printable(std::string_view message) {
  if (printable_lines(message) != message) detail::end_with("a message that acts on a terminal", message);
}

void require_law(bool holds, const char* law) {
  if (!holds) detail::end_with("a broken promise", law);
}

std::string_view as_text(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

MemoryFile::MemoryFile(Bytes bytes) : descriptor_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  if (descriptor_ < 0) detail::end_with("memfd_create", errno_text(errno));
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = ::write(descriptor_, bytes.data() + done, bytes.size() - done);
    if (written <= 0) detail::end_with("write to memory", errno_text(errno));
    done += static_cast<size_t>(written);
  }
  path_ = "/proc/self/fd/" + std::to_string(descriptor_);
}

MemoryFile::~MemoryFile() { ::close(descriptor_); }

}  // namespace lockstep::fuzz
