// The update of one rank: optimizer, running statistics and averages, as kernels over the arenas.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/model_state.h"
#include "lockstep/backend/update.h"
#include "lockstep/config/config.h"
#include "lockstep/graph/executable.h"

namespace lockstep {

OptimizerKind parse_optimizer(std::string_view name);

// Made once, of the training executable; used by the thread that runs the step. Backend and state must outlive it.
class Updater {
 public:
  Updater(const Backend& backend, const Executable& executable, const Config& config);

  // Changes parameters, optimizer slots, running statistics and averages: the only place where they change. `scalars`:
  // f32[kUpdateScalars] in the backend's memory, which may say that nothing is to change.
  void apply(Stream& stream, const ModelState& state, void* scalars) const;

 private:
  using Pointers = std::span<void* const>;
  void run(const Kernel& kernel, Stream& stream, Pointers inputs, Pointers outputs) const;

  std::unique_ptr<Kernel> optimizer_, statistics_, average_parameters_, average_statistics_;
  Buffer workspace_;
};

}  // namespace lockstep
