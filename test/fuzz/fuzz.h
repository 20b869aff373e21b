// What the fuzz targets share. A target reads bytes that somebody else made, through the same functions as the program.
// It may throw Error with a documented exit code, and nothing else; whatever else happens is a finding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::fuzz {

using Bytes = std::span<const std::byte>;

// Runs `read`. An Error counts as an answer unless it is an internal one or its message holds what a terminal acts on;
// then, as for every other exception, the process is ended by abort().
template <class Read>
void expect_answer(const Read& read);

// The same for a message that was not thrown.
void require_printable(std::string_view message);

// Ends the process when `holds` is false: a reader has handed out what it promises not to.
void require_law(bool holds, const char* law);

std::string_view as_text(Bytes bytes);

// A file in memory with these bytes, under a path of this process that any reader can open; gone with the object.
class MemoryFile {
 public:
  explicit MemoryFile(Bytes bytes);
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();
  const std::string& path() const { return path_; }

 private:
  int descriptor_ = -1;
  std::string path_;
};

namespace detail {
void end_with(const char* kind, std::string_view message);
void check_error(const std::exception& error);
}  // namespace detail

template <class Read>
void expect_answer(const Read& read) {
  try {
    read();
  } catch (const std::exception& error) {
    detail::check_error(error);
  }
}

}  // namespace lockstep::fuzz
