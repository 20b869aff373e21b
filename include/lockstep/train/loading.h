// How the configuration has samples loaded: the one place where a loader's options are made of it.
#pragma once

#include <cstdint>

#include "lockstep/backend/backend.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/config/config.h"
#include "lockstep/data/loader.h"

namespace lockstep {

BadRecords bad_record_rule(const Config& config);

// What one loader is for.
struct LoaderUse {
  bool training = true;
  const ProcessGroup& group;
  int64_t batch_size = 1;            // samples of one call on this rank
  int workers = 1;                   // threads
  int64_t start_position = 0;        // training: samples that all ranks together have consumed
  const Backend* backend = nullptr;  // that copies batches to a device, and outlives the loader; null: nothing does
};
LoaderOptions loader_options(const Config& config, const LoaderUse& use);

}  // namespace lockstep
