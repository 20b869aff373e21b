#include "app/cli/terminal.h"

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

#include "lockstep/base/parse_number.h"

namespace lockstep {
namespace {

constexpr const char* kRankVariable = "OMPI_COMM_WORLD_RANK";

// Returns the words of a file in another process's /proc directory; none if it cannot be read.
std::vector<std::string> process_words(pid_t process, const char* name, char separator = '\0') {
  std::ifstream file(fmt::format("/proc/{}/{}", process, name), std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, separator);) words.push_back(word);
  return words;
}

pid_t parent_of(pid_t process) {
  constexpr std::string_view kKey = "PPid:\t";
  for (const std::string& line : process_words(process, "status", '\n')) {
    if (line.starts_with(kKey)) return parse_number<pid_t>(std::string_view(line).substr(kKey.size())).value_or(0);
  }
  return 0;
}

bool was_launched(pid_t process) {
  return std::ranges::any_of(process_words(process, "environ"), [](const std::string& variable) {
    return variable.starts_with(fmt::format("{}=", kRankVariable));
  });
}

// The launcher of this rank and its direct child, which is the rank itself or a script or profiler around it.
struct Launch {
  pid_t launcher = 0, launched = 0;
};

Launch launch() {
  Launch found{::getppid(), ::getpid()};
  while (found.launcher > 1 && was_launched(found.launcher)) found = {parent_of(found.launcher), found.launcher};
  return found;
}

std::string file_name(const std::string& path) { return std::filesystem::path(path).filename().string(); }

// Returns the part of the launcher's command line before the program. The child's command line starts with the program,
// or with the interpreter if the program is a script, so its first two words are compared.
std::vector<std::string> launcher_options(const Launch& launch) {
  std::vector<std::string> words = process_words(launch.launcher, "cmdline");
  std::vector<std::string> model = process_words(launch.launched, "cmdline");
  model.resize(std::min<size_t>(model.size(), 2));
  const auto begins = std::ranges::find_if(words, [&](const std::string& word) {
    return std::ranges::any_of(model, [&](const std::string& name) { return file_name(name) == file_name(word); });
  });
  words.erase(begins, words.end());
  return words;
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Returns whether this option makes mpirun do more than show the output: "--tag-output", "--output-filename F",
// "--merge-stderr-to-stdout", "--xml", "--xterm 1", or "--output tag" and the like of Open MPI 5.
bool redirects_output(const std::string& option) {
  return option.starts_with('-') && (contains(option, "output") || contains(option, "merge-stderr") ||
                                     contains(option, "-xml") || contains(option, "-xterm"));
}

// Returns the same for an MCA parameter ("orte_tag_output", "orte_xml_output", "orte_xterm"), which is given after
// --mca or in the environment.
bool parameter_redirects_output(const std::string& name) {
  return name.starts_with("orte_") && (contains(name, "output") || contains(name, "xterm"));
}

bool does_more_than_show(const Launch& launch) {
  constexpr std::string_view kPrefix = "OMPI_MCA_";
  std::vector<std::string> words = launcher_options(launch);
  for (const std::string& variable : process_words(launch.launcher, "environ")) {
    if (variable.starts_with(kPrefix))
      words.push_back(variable.substr(kPrefix.size(), variable.find('=') - kPrefix.size()));
  }
  return std::ranges::any_of(words, redirects_output) || std::ranges::any_of(words, parameter_redirects_output);
}

// Returns the path of the file or terminal that gets this process's output (descriptor 1 or 2); empty if it is unknown.
std::string destination(int descriptor) {
  const bool launched = std::getenv(kRankVariable) != nullptr;  // NOLINT(concurrency-mt-unsafe)
  if (!launched) return fmt::format("/proc/self/fd/{}", descriptor);
  const Launch mine = launch();
  return does_more_than_show(mine) ? std::string() : fmt::format("/proc/{}/fd/{}", mine.launcher, descriptor);
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

bool moves_cursor(const EnvironmentLookup& environment) {
  const std::string terminal = environment("TERM").value_or("");
  return !terminal.empty() && terminal != "dumb";
}

bool takes_colours(const EnvironmentLookup& environment) {
  return environment("NO_COLOR").value_or("").empty() && moves_cursor(environment);
}

}  // namespace lockstep
