#include "lockstep/train/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {
namespace {

constexpr const char* kRankVariable = "OMPI_COMM_WORLD_RANK";

// The words of a file that /proc has of another process; none when it cannot be read.
std::vector<std::string> process_words(pid_t process, const char* name, char separator = '\0') {
  std::ifstream file(fmt::format("/proc/{}/{}", process, name), std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, separator);) words.push_back(word);
  return words;
}

pid_t parent_of(pid_t process) {
  constexpr std::string_view kKey = "PPid:";
  for (const std::string& line : process_words(process, "status", '\n')) {
    if (line.starts_with(kKey)) return static_cast<pid_t>(std::atoi(line.c_str() + kKey.size()));
  }
  return 0;
}

bool was_launched(pid_t process) {
  return std::ranges::any_of(process_words(process, "environ"), [](const std::string& variable) {
    return variable.starts_with(fmt::format("{}=", kRankVariable));
  });
}

// The launcher of this rank: what stands between, a script or a profiler, has been launched as well.
pid_t launcher() {
  pid_t process = ::getppid();
  while (process > 1 && was_launched(process)) process = parent_of(process);
  return process;
}

// "--tag-output", "--output-filename F", "--mca orte_output_filename F"; "--output tag" and the like of Open MPI 5.
bool does_more_than_show(pid_t launcher) {
  return std::ranges::any_of(process_words(launcher, "cmdline"), [](const std::string& word) {
    return word == "orte_output_filename" || (word.starts_with('-') && word.find("output") != std::string::npos);
  });
}

// Where this process's output (descriptor 1 or 2) ends; empty when that cannot be told.
std::string destination(int descriptor) {
  const bool launched = std::getenv(kRankVariable) != nullptr;  // NOLINT(concurrency-mt-unsafe)
  if (!launched) return fmt::format("/proc/self/fd/{}", descriptor);
  const pid_t process = launcher();
  return does_more_than_show(process) ? std::string() : fmt::format("/proc/{}/fd/{}", process, descriptor);
}

bool is_terminal_path(const std::filesystem::path& link) {
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(link, error).string();
  return !error && (target.starts_with("/dev/pts/") || target.starts_with("/dev/tty"));
}

}  // namespace

bool output_is_terminal(int descriptor) { return is_terminal_path(destination(descriptor)); }

int terminal_columns() {
  constexpr int kUsual = 100;
  const int terminal = ::open(destination(STDOUT_FILENO).c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0) return kUsual;
  winsize size{};
  const bool known = ::ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  ::close(terminal);
  return known ? size.ws_col : kUsual;
}

bool takes_colours(const EnvironmentLookup& environment) {
  const std::string terminal = environment("TERM").value_or("");
  return environment("NO_COLOR").value_or("").empty() && !terminal.empty() && terminal != "dumb";
}

}  // namespace lockstep
