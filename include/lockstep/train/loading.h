// Builds loader options from the configuration. This is the only place that does so.
#pragma once

#include <cstdint>

#include "lockstep/backend/backend.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/config/config.h"
#include "lockstep/data/loader.h"

namespace lockstep {

class CompiledModel;

BadRecords bad_record_rule(const Config& config);

// The purpose of one loader.
struct LoaderUse {
  bool training = true;
  const ProcessGroup& group;
  int64_t batch_size = 1;      // samples per batch on this rank
  int workers = 1;             // number of threads
  int64_t start_position = 0;  // for training: number of samples that all ranks together have consumed
  // Reads the batches, and its backend, which must outlive the loader, copies them to a device; null if nothing does.
  const CompiledModel* model = nullptr;
};
LoaderOptions loader_options(const Config& config, const LoaderUse& use);

}  // namespace lockstep
