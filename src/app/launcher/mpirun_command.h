// From the arguments of `lockstep run` to the command line of mpirun.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/cpu_topology.h"
#include "lockstep/base/environment.h"

namespace lockstep {

struct RunOption {
  std::string_view flag;
  std::string_view values;  // names of the values that follow the flag; empty: none
  std::string_view meaning;
};

// Returns the options of `lockstep run`, for its parser, help, man page and completion.
std::span<const RunOption> run_options();

struct RunRequest {
  int ranks = 0;  // 0: the slots of the hosts
  std::string hostfile;
  std::string mpirun = "mpirun";
  std::vector<std::string> passed_on;  // options of mpirun
  bool print_only = false;
  std::vector<std::string> arguments;  // of the trainer
};

// Parses the arguments that follow `run`. Those of the trainer begin after "--", or with the first word that is no
// option of `run`; the word "trainer" may precede them. Throws Error(config).
RunRequest parse_run_request(std::span<const std::string> arguments);

// Where the job is started.
struct LaunchSite {
  std::string trainer;                // path of the program
  std::vector<Processor> processors;  // of this host that the job may use; empty: unknown
  size_t usable_processors = 0;       // of these, by the affinity mask of this process
  bool root = false;
  bool mpirun_5 = false;      // the launcher is Open MPI's from version 5 on
  std::string hostfile_text;  // the contents of the request's hostfile
  EnvironmentLookup environment;
};

struct MpirunCommand {
  std::vector<std::string> environment;  // "NAME=value" in addition to that of this process
  std::vector<std::string> words;
  int local_ranks = 0;  // number of ranks on this host; 0: unknown

  // As one line for a shell.
  std::string text() const;
};

// Chooses the options of mpirun: those of root, more ranks than cores, and the cores of each rank. Throws Error(config)
// if the number of ranks is not known.
MpirunCommand mpirun_command(const RunRequest& request, const LaunchSite& site);

}  // namespace lockstep
