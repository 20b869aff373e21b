// Rejects models that do not fit into the memory of the host or the GPU.
#pragma once

#include "lockstep/backend/out_of_memory.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

// The memory of one rank's model in bytes.
struct MemoryNeed {
  int64_t state = 0;        // parameters, gradients, optimizer slots, averages
  int64_t activations = 0;  // including workspaces
  int64_t sum() const { return state + activations; }
};

// The memory of the machine.
struct MemoryPresent {
  const char* kind = "memory";  // "memory" or "GPU memory"
  int64_t bytes = -1;           // -1 if it is unknown
  bool gpu = false;
};
// Throws Error(config), which says how much memory is needed and present, and which keys lower the need.
[[noreturn]] void fail_too_large(const Config& config, const ModelBatches& batches, const MemoryNeed& need,
                                 const MemoryPresent& present);

// Throws Error(config) if all ranks of the host together need more than `host_bytes`, before the kernel's OOM killer
// ends one of them. A smaller need is accepted, because only a need above the total memory of the host is certain to
// fail.
void require_host_memory(const Config& config, const ModelBatches& batches, const MemoryNeed& need, int64_t host_bytes);

}  // namespace lockstep
