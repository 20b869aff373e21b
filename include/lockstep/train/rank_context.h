// What one rank runs on.
#pragma once

#include <atomic>

#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/supervision/watchdog.h"
#include "lockstep/comm/transport/communicator.h"
#include "lockstep/config/config.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

// Every rank makes one once its model is compiled and its communicator connected. main owns what it refers to, which
// must outlive everything that is built on it.
struct RankContext {
  const Config& config;
  ProcessGroup& group;
  Watchdog& watchdog;
  const std::atomic<bool>& stop_requested;  // set by a signal
  Communicator& communicator;
  Stream& stream;
  const CompiledModel& model;
  int loader_threads = 1;

  const Backend& backend() const { return model.backend(); }
};

}  // namespace lockstep
