#include <cstdio>

#include "app/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/inspect.h"

namespace lockstep {

int inspect_command(const CommandLine& command) {
  const Inspection found = inspect_checkpoint(command.checkpoint, command.verify);
  std::fputs(found.text.c_str(), stdout);
  return static_cast<int>(found.whole ? ExitCode::ok : ExitCode::checkpoint);
}

}  // namespace lockstep
