// What tests of files share: a directory that goes away, commands of the system, the error a call throws.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

// A fresh directory, removed with all it holds.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "cannot make a scratch directory");
    path_ = name;
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Writes a file, with the directories above it.
inline void write_file(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

struct CommandResult {
  int status = -1;     // exit status; 128 + signal when killed
  std::string output;  // standard output and error together
};

// Runs a shell command line and waits.
inline CommandResult run_command(const std::string& line) {
  CommandResult result;
  FILE* pipe = ::popen(("{ " + line + " ; } 2>&1").c_str(), "r");
  require(pipe != nullptr, "cannot run {}", line);
  std::array<char, 4096> buffer{};
  for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    result.output.append(buffer.data(), got);
  }
  const int status = ::pclose(pipe);
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

inline bool command_works(const std::string& line) { return run_command(line).status == 0; }

// The Error that `call` throws, or nothing when it returns.
template <class Call>
std::optional<Error> error_of(const Call& call) {
  try {
    call();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace lockstep
