#include "app/devices.h"

#include "lockstep/backend/cpu_library.h"
#include "lockstep/backend/deferred_backend.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/comm/group/device_placement.h"
#include "lockstep/comm/transport/mpi_communicator.h"
#include "lockstep/comm/transport/nccl_communicator.h"
#include "lockstep/comm/transport/staged_communicator.h"

namespace lockstep {
namespace {

// The GPU of a rank, or the reason why it has none.
struct GpuChoice {
  RankDevice device;
  std::unique_ptr<Backend> backend;
};

GpuChoice try_gpu(BackendOptions options, const ProcessGroup& group) {
  GpuChoice choice;
  try {
    const std::vector<std::string> ids = gpu_ids();
    if (!ids.empty()) {
      options.device = device_of({.local_rank = group.local_rank(), .visible_devices = static_cast<int>(ids.size())});
    }
    choice.backend = make_backend("cuda", options);
    choice.device.id = ids.at(static_cast<size_t>(options.device));
  } catch (const Error& error) {
    choice.device.reason = error.what();
  }
  return choice;
}

// Turns an error of `decide`, which is the same on every rank, into an AgreedError.
template <class Decide>
auto agreed(const Decide& decide) {
  try {
    return decide();
  } catch (const Error& error) {
    throw AgreedError(error.code(), error.what(), error.where());
  }
}

std::unique_ptr<Backend> make_cpu_of(const Config& config, const BackendOptions& options) {
  const Precision precision = config.train.precision;
  if (precision == Precision::bf16 ? !cpu_computes_bf16() : precision != Precision::float32) {
    fail(ExitCode::config,
         "train.precision = \"{}\" needs a GPU: the CPU backend computes in float32, and in bf16 on processors with "
         "AVX512_BF16 or AMX",
         word(precision));
  }
  auto backend = make_backend("cpu", options);
  return config.device.deferred ? make_deferred_backend(std::move(backend)) : std::move(backend);
}

// A single rank sends nothing, and needs no NCCL unless it is asked for.
bool wants_nccl(const Config& config, const Backend& backend, int ranks, bool shared_devices) {
  const TransportChoice transport = config.comm.transport;
  const bool on_gpu = backend.name() == "cuda";
  if (transport == TransportChoice::nccl && !on_gpu) {
    fail(ExitCode::config, "comm.transport = \"nccl\" needs GPUs; this job computes on CPUs");
  }
  if (transport == TransportChoice::nccl && shared_devices) {
    fail(ExitCode::config, "comm.transport = \"nccl\" needs a GPU a rank, but ranks share one (device.share)");
  }
  const bool nccl = transport == TransportChoice::nccl ||
                    (transport == TransportChoice::automatic && on_gpu && !shared_devices && ranks > 1);
  if (!nccl && (ranks > 1 || !on_gpu) && config.comm.algorithm == ReductionAlgorithm::tree) {
    fail(ExitCode::config, "comm.algorithm = \"tree\" is NCCL's; MPI chooses by itself: leave the key out");
  }
  return nccl;
}

}  // namespace

ChosenBackend choose_backend(const Config& config, const ThreadBudget& threads, ProcessGroup& group) {
  const BackendOptions options{.threads = threads.compute,
                               .tf32 = config.train.precision == Precision::tf32,
                               .winograd = config.device.winograd};
  const Timeout wait{"the devices of all ranks"};
  const auto on_cpu = [&] {
    ChosenBackend chosen;
    on_every_rank(group, wait, [&] { chosen.backend = make_cpu_of(config, options); });
    return chosen;
  };
  if (config.device.kind == DeviceChoice::cpu) return on_cpu();
  GpuChoice mine = try_gpu(options, group);
  const std::vector<RankDevice> all = gather_devices(group, mine.device, wait);
  if (agreed([&] { return agree_on_kind(config.device.kind == DeviceChoice::gpu, all); }) == DeviceKind::cpu) {
    if (group.is_root()) log_info("{}; computing on the CPU", all[0].reason);
    return on_cpu();
  }
  const bool shared = agreed([&] { return devices_are_shared(all, config.device.share); });
  if (shared && group.is_root()) log_info("ranks share GPUs: gradients go through host memory and MPI");
  return {std::move(mine.backend), shared};
}

bool may_share_memory(const Config& config, bool host_addressable) {
  return config.comm.transport == TransportChoice::automatic && host_addressable;
}

std::unique_ptr<Communicator> make_communicator(const Config& config, ProcessGroup& group, const Backend& backend,
                                                bool shared_devices) {
  const double limit = group.limit(RunPhase::train);
  if (agreed([&] { return wants_nccl(config, backend, group.size(), shared_devices); })) {
    const Timeout wait{"NCCL"};
    std::shared_ptr<NcclLibrary> library;
    on_every_rank(group, wait, [&] { library = open_nccl(); });
    return std::make_unique<NcclCommunicator>(
        group, backend, std::move(library),
        NcclOptions{.algorithm = std::string(word(config.comm.algorithm)), .wait_seconds = limit});
  }
  auto mpi = std::make_unique<MpiCommunicator>(
      group, MpiCommunicatorOptions{.abort_seconds = limit,
                                    .shared_memory = may_share_memory(config, backend.host_addressable())});
  if (backend.host_addressable()) return mpi;
  return std::make_unique<StagedCommunicator>(backend, std::move(mpi));
}

void require_capturable(const Config& config, const Backend& backend, const Communicator& communicator) {
  if (config.device.graph != GraphCapture::on) return;
  if (backend.host_addressable())
    throw AgreedError(ExitCode::config, "device.graph = \"on\" needs a GPU; this job computes on CPUs");
  if (!communicator.stream_ordered()) {
    throw AgreedError(
        ExitCode::config,
        "device.graph = \"on\" needs NCCL: the sums of MPI are made by the host, which cannot be captured; use "
        "comm.transport = \"nccl\" with a GPU a rank, or device.graph = \"auto\"");
  }
}

void share_gradients(CompiledModel& model, Communicator& communicator) {
  Buffer memory = communicator.shared_buffer(model.state().gradients.bytes());
  if (memory.data()) model.place_gradients(std::move(memory));
}

}  // namespace lockstep
