// The update of one rank: optimizer, running statistics and averages, as kernels over the arenas.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/model_state.h"
#include "lockstep/backend/update.h"
#include "lockstep/graph/executable.h"
#include "lockstep/train/config.h"

namespace lockstep {

OptimizerKind parse_optimizer(std::string_view name);

// What the trainer decides for one step; everything else is in the arenas.
struct UpdateScalars {
  double learning_rate = 0;
  double gradient_scale = 1;  // multiplies the summed gradients: 1 / samples, and clipping
  int64_t samples = 0;        // of the global batch
  int64_t update = 1;         // number of this update, from 1
};

// Made once, of the training executable; used by the thread that runs the step. Backend and state must outlive it.
class Updater {
 public:
  Updater(const Backend& backend, const Executable& executable, const Config& config);

  // The norm of the summed gradients times `scale`: not finite exactly when some gradient is not.
  double gradient_norm(Stream& stream, const ModelState& state, double scale) const;

  // Changes parameters, optimizer slots, running statistics and averages: the only place where they change.
  void apply(Stream& stream, const ModelState& state, const UpdateScalars& scalars) const;

 private:
  using Pointers = std::span<void* const>;
  void run(const Kernel& kernel, Stream& stream, Pointers inputs, Pointers outputs) const;

  const Backend& backend_;
  OptimizerKind kind_;
  double average_decay_ = 0;
  double beta1_ = 0, beta2_ = 0;
  std::unique_ptr<Kernel> norm_, optimizer_, statistics_, average_parameters_, average_statistics_;
  Buffer scalars_, norm_result_, workspace_;
};

}  // namespace lockstep
