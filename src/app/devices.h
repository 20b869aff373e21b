// Chooses, with all ranks together, the device of a job and the transport of its gradients.
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

// Collective. Returns the backend that the device keys request, of the same kind on every rank. If device.kind = "auto"
// finds no GPU, rank 0 logs why. Throws AgreedError.
ChosenBackend choose_backend(const Config& config, const ThreadBudget& threads, ProcessGroup& group);

// Whether ranks of one host may sum in memory that they share.
bool may_share_memory(const Config& config, bool host_addressable);

// Collective. Returns the communicator that the comm keys request. Throws AgreedError(config) for keys that contradict
// each other.
std::unique_ptr<Communicator> make_communicator(const Config& config, ProcessGroup& group, const Backend& backend,
                                                bool shared_devices);
// Throws AgreedError(config) if device.graph = "on" requires captures that this job cannot make.
void require_capturable(const Config& config, const Backend& backend, const Communicator& communicator);

// Collective. Moves the gradients to memory in which the communicator sums without copies, if there is any.
void share_gradients(CompiledModel& model, Communicator& communicator);

}  // namespace lockstep
