// Implements NcclLibrary with NCCL. Part of the CUDA plugin.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/transport/nccl_communicator.h"

namespace lockstep {
namespace {

// A non-blocking communicator returns ncclInProgress instead of waiting, so that is not an error.
void check_nccl(ncclResult_t status, std::string_view what) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  fail(ExitCode::internal, "NCCL, {}: {}", what, ncclGetErrorString(status));
}

cudaStream_t native(Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

// NCCL reads its algorithms from the environment at the first use. NCCL_ALGO of the user takes precedence.
std::string algorithms(const std::string& choice) {
  if (choice == "ring") return "Ring";
  // NCCL chooses by size and topology, but not NVLS: the order in which switches add depends on timing.
  if (choice == "auto") return "Ring,Tree";
  int version = 0;
  check_nccl(ncclGetVersion(&version), "asking for the version");
  // Since this version NCCL_ALGO can be set per operation. Broadcast must be excluded because it has no tree algorithm.
  constexpr int kPerOperation = 22400;
  return version >= kPerOperation ? "allreduce:tree" : "Tree";
}

class Link final : public NcclLink {
 public:
  explicit Link(const NcclAddress& address) {
    ncclUniqueId id{};
    require(address.id.size() == sizeof id.internal, "an address of {} bytes", address.id.size());
    std::memcpy(id.internal, address.id.data(), sizeof id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check_nccl(ncclCommInitRankConfig(&comm_, address.size, id, address.rank, &config), "connecting the ranks");
  }
  ~Link() override { abort(); }

  Report report() override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    if (asked != ncclSuccess) return {State::failed, ncclGetErrorString(asked)};
    if (state == ncclSuccess) return {State::ready, {}};
    if (state == ncclInProgress) return {State::in_progress, {}};
    return {State::failed, fmt::format("{} ({})", ncclGetErrorString(state), ncclGetLastError(comm_))};
  }
  void all_reduce(Stream& stream, std::span<float> values) override {
    check_nccl(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat32, ncclSum, comm_, native(stream)),
               "an all-reduce");
  }
  void all_reduce(Stream& stream, std::span<double> values) override {
    check_nccl(ncclAllReduce(values.data(), values.data(), values.size(), ncclFloat64, ncclSum, comm_, native(stream)),
               "an all-reduce");
  }
  void all_reduce(Stream& stream, HalfSpan half) override {
    const ncclDataType_t type = half.type == DType::bf16 ? ncclBfloat16 : ncclFloat16;
    check_nccl(
        ncclAllReduce(half.values.data(), half.values.data(), half.values.size(), type, ncclSum, comm_, native(stream)),
        "an all-reduce");
  }
  void broadcast(Stream& stream, std::span<std::byte> bytes, int root) override {
    check_nccl(ncclBroadcast(bytes.data(), bytes.data(), bytes.size(), ncclUint8, root, comm_, native(stream)),
               "a broadcast");
  }
  void finalize() override { check_nccl(ncclCommFinalize(comm_), "finalizing the connection"); }
  void destroy() noexcept override { warn(ncclCommDestroy(std::exchange(comm_, nullptr))); }
  void abort() noexcept override {
    if (comm_) warn(ncclCommAbort(std::exchange(comm_, nullptr)));
  }

 private:
  static void warn(ncclResult_t status) noexcept {
    if (status == ncclSuccess || status == ncclInProgress) return;
    log_warning("ending an NCCL connection: {}", ncclGetErrorString(status));
  }

  ncclComm_t comm_ = nullptr;
};

class Library final : public NcclLibrary {
 public:
  std::vector<std::byte> make_id() override {
    ncclUniqueId id{};
    check_nccl(ncclGetUniqueId(&id), "making an address");
    std::vector<std::byte> bytes(sizeof id.internal);
    std::memcpy(bytes.data(), id.internal, bytes.size());
    return bytes;
  }
  std::unique_ptr<NcclLink> connect(const NcclAddress& address) override {
    require(::setenv("NCCL_ALGO", algorithms(address.algorithm).c_str(), 0) == 0, "cannot set NCCL_ALGO");
    return std::make_unique<Link>(address);
  }
};

}  // namespace
}  // namespace lockstep

extern "C" __attribute__((visibility("default"))) lockstep::NcclLibrary* lockstep_open_nccl() {
  return new lockstep::Library;
}
