// Where a job computes and what carries its gradients: the choices that all ranks make together.
#pragma once

#include <memory>

#include "lockstep/backend/backend.h"
#include "lockstep/base/cpu_cores.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/transport/communicator.h"
#include "lockstep/config/config.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

struct ChosenBackend {
  std::unique_ptr<Backend> backend;
  bool shared = false;  // some ranks share a GPU
};

// The backend that the device keys ask for, the same kind on every rank; rank 0 says why it is not a GPU where one was
// hoped for. Collective; throws AgreedError.
ChosenBackend choose_backend(const Config& config, const ThreadBudget& threads, ProcessGroup& group);

// Whether ranks of one host may sum in memory that they share.
bool may_share_memory(const Config& config, bool host_addressable);

// What the comm keys ask for. Collective; throws AgreedError(config) for what does not go together.
std::unique_ptr<Communicator> make_communicator(const Config& config, ProcessGroup& group, const Backend& backend,
                                                bool shared_devices);
// Throws AgreedError(config) if device.graph = "on" asks for captures that this job cannot make.
void require_capturable(const Config& config, const Backend& backend, const Communicator& communicator);

// Lets the gradients lie where the communicator sums them without copies, if there is such memory. Collective.
void share_gradients(CompiledModel& model, Communicator& communicator);

}  // namespace lockstep
