// The refusal of a model that the host or the GPU has no room for.
#pragma once

#include "lockstep/backend/out_of_memory.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

// What one rank's model takes, in bytes.
struct MemoryNeed {
  int64_t state = 0;        // parameters, gradients, optimizer slots, averages
  int64_t activations = 0;  // with workspaces
  int64_t sum() const { return state + activations; }
};

// Throws Error(config) that says what is needed and present, and the keys that lower the need. `present`: bytes of
// `kind` ("memory", "GPU memory"), -1 when it cannot be told.
struct MemoryPresent {
  const char* kind = "memory";
  int64_t bytes = -1;
  bool gpu = false;
};
[[noreturn]] void fail_too_large(const Config& config, const ModelBatches& batches, const MemoryNeed& need,
                                 const MemoryPresent& present);

// Refuses what all ranks of the host together cannot have, before the kernel ends one of them for it. Only a need above
// all of the host's memory is certain to fail.
void require_host_memory(const Config& config, const ModelBatches& batches, const MemoryNeed& need, int64_t host_bytes);

}  // namespace lockstep
