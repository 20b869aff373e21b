// lockstep run: starts the trainer under mpirun, and lets it save when it is stopped.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "app/launcher/launched_job.h"
#include "app/launcher/mpirun_command.h"
#include "app/rank_mapping.h"
#include "lockstep/base/cpu_cores.h"
#include "lockstep/base/error.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/proc.h"
#include "lockstep/base/program_path.h"
#include "lockstep/base/split_words.h"

namespace lockstep {
namespace {

constexpr const char* kMeaning =
    "Runs the trainer on several ranks with mpirun, whose options it chooses and prints: those that root needs,\n"
    "--oversubscribe for more ranks than cores, and cores for each rank.\n\n"
    "Ctrl-C, SIGTERM, SIGUSR1 and the end of the terminal (SIGHUP) ask every rank to save and stop; the exit code\n"
    "is then 75, and the same command goes on where it stopped. A second Ctrl-C, a second later or more, ends the\n"
    "job at once, without a save. Ctrl-Z suspends the job. Otherwise, the exit code is that of the job.";

std::string usage() {
  std::string text = fmt::format(
      "Usage: lockstep run -np N [OPTION...] [--] ARGUMENT...\n\n    lockstep run -np 4 --config run.toml\n\n{}\n\n"
      "Options; the other arguments are those of the trainer (trainer --help):\n",
      kMeaning);
  for (const RunOption& option : run_options()) {
    text += fmt::format("  {:22}{}\n", fmt::format("{} {}", option.flag, option.values), option.meaning);
  }
  return text;
}

std::string man_page() {
  std::string text =
      fmt::format(".TH LOCKSTEP 1 \"\" \"Lockstep " LOCKSTEP_VERSION
                  "\" \"User Commands\"\n.SH NAME\nlockstep \\- start and stop a training job\n.SH SYNOPSIS\n"
                  "\\fBlockstep run \\-np\\fR \\fIN\\fR [\\fIOPTION\\fR...] [\\fB\\-\\-\\fR] \\fIARGUMENT\\fR...\n"
                  ".SH DESCRIPTION\n{}\n.SH OPTIONS\n",
                  kMeaning);
  for (const RunOption& option : run_options()) {
    text += fmt::format(".TP\n\\fB{}\\fR \\fI{}\\fR\n{}\n", option.flag, option.values, option.meaning);
  }
  return text + ".SH SEE ALSO\ntrainer(1), mpirun(1)\n";
}

// After the options of `run`, the completion is that of the trainer.
std::string bash_completion() {
  std::string flags;
  for (const RunOption& option : run_options()) flags += fmt::format("{} ", option.flag);
  return fmt::format(R"(# Completion of lockstep for bash; printed by lockstep --help-bash.
_lockstep() {{
  local current=${{COMP_WORDS[COMP_CWORD]}}
  if ((COMP_CWORD == 1)); then COMPREPLY=($(compgen -W "run" -- "$current")); return; fi
  declare -F _trainer >/dev/null || . "${{BASH_SOURCE[0]%/*}}/trainer" 2>/dev/null
  declare -F _trainer >/dev/null && _trainer
  [[ $current == -* ]] && COMPREPLY+=($(compgen -W "{}" -- "$current"))
}}
complete -o default -F _lockstep lockstep
)",
                     flags);
}

// Whether this mpirun is beside a launcher that only Open MPI 5 has.
bool is_mpirun_5(const std::string& mpirun) {
  std::string directories = process_environment()("PATH").value_or("");
  if (const size_t slash = mpirun.rfind('/'); slash != std::string::npos) directories = mpirun.substr(0, slash);
  for (const std::string_view directory : split_words(directories, ':')) {
    const std::filesystem::path path(directory);
    const bool found = ::access((path / std::filesystem::path(mpirun).filename()).c_str(), X_OK) == 0;
    if (found) return ::access((path / "prterun").c_str(), X_OK) == 0;
  }
  return false;
}

LaunchSite this_site(const RunRequest& request) {
  LaunchSite site{.trainer = (program_directory() / "trainer").string(),
                  .processors = processors_of_job(),
                  .usable_processors = cpu_cores().cpus.size(),
                  .root = ::geteuid() == 0,
                  .mpirun_5 = is_mpirun_5(request.mpirun),
                  .hostfile_text = {},
                  .environment = process_environment()};
  if (::access(site.trainer.c_str(), X_OK) != 0) {
    fail(ExitCode::config, "{}: there is no such program, which belongs beside lockstep", site.trainer);
  }
  if (request.hostfile.empty()) return site;
  const auto text = read_system_file(request.hostfile);
  if (!text) fail(ExitCode::config, "--hostfile {}: cannot be read", printable(request.hostfile));
  site.hostfile_text = *text;
  return site;
}

int run(const std::vector<std::string>& arguments) {
  const RunRequest request = parse_run_request(arguments);
  const LaunchSite site = this_site(request);
  const MpirunCommand command = mpirun_command(request, site);
  if (request.print_only) {
    fmt::print("{}\n", command.text());
    return 0;
  }
  const HeldSignals signals = hold_signals();
  fmt::print(stderr, "+ {}\n", printable_lines(command.text()));
  return run_launched({.program = "lockstep",
                       .is_mpirun = true,
                       .local_ranks = command.local_ranks,
                       .leaves_out_epilogue = site.mpirun_5},
                      signals, command.words, command.environment);
}

int start(std::vector<std::string> arguments) {
  const std::string first = arguments.empty() ? "--help" : arguments.front();
  const bool is_run = first == "run";
  if (is_run) arguments.erase(arguments.begin());
  const bool help = !arguments.empty() && (arguments.front() == "--help" || arguments.front() == "-h");
  if (arguments.empty() || help) {
    std::fputs(usage().c_str(), help ? stdout : stderr);
    return help ? 0 : static_cast<int>(ExitCode::config);
  }
  if (is_run) return run(arguments);
  if (first == "--version") {
    fmt::print("lockstep (Lockstep) {}\n", LOCKSTEP_VERSION);
    return 0;
  }
  if (first == "--help-man" || first == "--help-bash") {
    std::fputs((first == "--help-man" ? man_page() : bash_completion()).c_str(), stdout);
    return 0;
  }
  fail(ExitCode::config, "'{}' is no subcommand{}; see lockstep --help", printable(first),
       did_you_mean(first, {"run"}));
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    return lockstep::start({argv + 1, argv + argc});
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "lockstep: {}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep: {}\n", error.what());
    return static_cast<int>(lockstep::ExitCode::internal);
  }
}
