// fuzz_regressions TARGET DIRECTORY...: runs a fuzz target on every file of the directories, each in a process of its
// own that may take so much memory and time. Fails when one is ended by a signal, or when there is no file at all.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "test/fuzz/targets.h"

namespace lockstep::fuzz {
namespace {

namespace fs = std::filesystem;

// What a reader may take for a file of up to 64 kB (docs/fuzzing.md), and the program with its libraries beside it.
constexpr rlim_t kMemory = rlim_t{512} << 20;  // address space
constexpr rlim_t kSeconds = 20;                // processor time
constexpr unsigned kDeadline = 120;            // seconds of the clock, whatever else the machine does

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kShadowed = true;  // a sanitizer maps far more than it uses
#else
constexpr bool kShadowed = false;
#endif

void limit(int resource, rlim_t most) {
  const rlimit bound{.rlim_cur = most, .rlim_max = most};
  if (::setrlimit(static_cast<__rlimit_resource>(resource), &bound) != 0) std::perror("setrlimit"), std::_Exit(2);
}

[[noreturn]] void run_child(const Target& target, const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream) std::perror(path.c_str()), std::_Exit(2);
  if (!kShadowed) limit(RLIMIT_AS, kMemory);
  limit(RLIMIT_CPU, kSeconds * (kShadowed ? 10 : 1));
  limit(RLIMIT_CORE, 0);
  ::alarm(kDeadline);
  target.run(std::as_bytes(std::span(bytes)));
  std::_Exit(0);
}

// True when the input was answered.
bool run(const Target& target, const fs::path& path) {
  const pid_t child = ::fork();
  if (child == 0) run_child(target, path);
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) {
    std::perror("fork");
    return false;
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  std::fprintf(stderr, "%s: ended by %s %d\n", path.c_str(), WIFSIGNALED(status) ? "signal" : "exit code",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  return false;
}

int main(int count, char** arguments) {
  const auto* target = kTargets.begin();
  while (count > 1 && target != kTargets.end() && target->name != arguments[1]) ++target;
  if (count < 3 || target == kTargets.end()) {
    std::fprintf(stderr, "usage: %s TARGET DIRECTORY...\n", arguments[0]);
    return 2;
  }
  std::set<fs::path> inputs;
  for (int i = 2; i < count; ++i) {
    if (!fs::exists(arguments[i])) continue;  // a target without findings
    for (const fs::directory_entry& entry : fs::directory_iterator(arguments[i])) inputs.insert(entry.path());
  }
  int failed = 0;
  for (const fs::path& input : inputs) failed += run(*target, input) ? 0 : 1;
  std::printf("%s: %zu inputs, %d failed\n", arguments[1], inputs.size(), failed);
  return failed == 0 && !inputs.empty() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep::fuzz

int main(int count, char** arguments) { return lockstep::fuzz::main(count, arguments); }
