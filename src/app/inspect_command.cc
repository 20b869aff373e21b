#include <cstdio>

#include "app/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/checkpoint/inspect.h"
#include "lockstep/checkpoint/run_directory.h"

namespace lockstep {

int inspect_command(const CommandLine& command) {
  const std::string path = checkpoint_at(command.checkpoint);
  const Inspection found = command.compared.empty()
                               ? inspect_checkpoint(path, command.verify)
                               : compare_checkpoints({.first = path, .second = checkpoint_at(command.compared)});
  std::fputs(printable_lines(found.text).c_str(), stdout);
  return static_cast<int>(found.whole ? ExitCode::ok : ExitCode::checkpoint);
}

}  // namespace lockstep
