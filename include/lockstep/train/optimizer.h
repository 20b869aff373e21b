// The update step: optimizer, running statistics and moving averages, as kernels on the arenas.
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

// Returns the factor of each parameter's learning rate (optimizer.lr_factors), by ParameterId. Throws Error(config) if
// a pattern matches no trained parameter.
std::vector<double> rate_factors(const ParameterTable& table, const Config::Optimizer& config);

// Created once from the training executable and used by the thread that runs the step. The backend and the state must
// outlive it.
class Updater {
 public:
  Updater(const Backend& backend, const Executable& executable, const Config& config);

  // Updates parameters, optimizer slots, running statistics and averages. This is the only place where training changes
  // them. `scalars` has shape f32[kUpdateScalars] in the backend's memory; it can disable the update.
  void apply(Stream& stream, const ModelState& state, void* scalars) const;

 private:
  using Pointers = std::span<void* const>;
  void run(const Kernel& kernel, Stream& stream, Pointers inputs, Pointers outputs) const;

  std::unique_ptr<Kernel> optimizer_, statistics_, average_parameters_, average_statistics_;
  Buffer workspace_;
};

}  // namespace lockstep
