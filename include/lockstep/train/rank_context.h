// The context of one rank: references to everything on which it runs.
#pragma once

#include <atomic>
#include <cstdint>

#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/supervision/watchdog.h"
#include "lockstep/comm/transport/communicator.h"
#include "lockstep/config/config.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

// every_step is for measuring without the loader: the first batch is used in every step, and stays in the memory to
// which it was copied.
enum class BatchUse : uint8_t { one_step, every_step };

// Every rank makes one once its model is compiled and its communicator connected. main owns the objects to which it
// refers, which must outlive everything that is built on it.
struct RankContext {
  const Config& config;
  ProcessGroup& group;
  Watchdog& watchdog;
  const std::atomic<bool>& stop_requested;  // set by a signal
  Communicator& communicator;
  Stream& stream;
  const CompiledModel& model;
  int loader_threads = 1;
  BatchUse batch_use = BatchUse::one_step;

  const Backend& backend() const { return model.backend(); }
};

}  // namespace lockstep
