#include "backend/cuda/cuda_backend.h"

#include <cuda_runtime_api.h>

#include "backend/cuda/check.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/stream.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::cuda {
namespace {

using Descs = std::span<const TensorDesc>;

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const BackendOptions& options) : tf32_(options.tf32) {}

  std::string_view name() const override { return "cuda"; }

  FormatChoice choose_formats(const Op&, Descs inputs, Descs outputs) const override {
    return {std::vector<Format>(inputs.size()), std::vector<Format>(outputs.size())};
  }
  size_t saved_bytes(const Op&, Descs) const override { return 0; }
  size_t storage_bytes(const TensorDesc& desc) const override { return packed_bytes(desc); }

  std::unique_ptr<Kernel> compile(const Op& op, Descs, Descs) const override {
    fail(ExitCode::config, "the CUDA backend has no {} yet; set device.kind = \"cpu\"", op_name(op));
  }
  std::unique_ptr<Kernel> compile(const UpdateOp&) const override {
    fail(ExitCode::config, "the CUDA backend has no updates yet; set device.kind = \"cpu\"");
  }

  Buffer allocate(size_t bytes) const override { return allocate_device(bytes); }
  Buffer allocate_pinned(size_t bytes) const override { return allocate_pinned_host(bytes); }
  bool host_addressable() const override { return false; }
  void copy(Stream& stream, void* to, const void* from, size_t bytes) const override {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, static_cast<CudaStream&>(stream).get()), "a copy");
  }
  std::unique_ptr<Stream> make_stream() const override { return std::make_unique<CudaStream>(tf32_); }
  std::unique_ptr<Event> make_event() const override { return std::make_unique<CudaEvent>(); }

 private:
  bool tf32_;
};

}  // namespace

std::unique_ptr<Backend> make_backend_on_device(const BackendOptions& options) {
  const cudaError_t status = cudaSetDevice(options.device);
  if (status != cudaSuccess) {
    fail(ExitCode::config, "no usable GPU: device {}: {}", options.device, cudaGetErrorString(status));
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, options.device), "asking for the device's properties");
  log_info("GPU {}: {}, {:.1f} GB, compute capability {}.{}", options.device, properties.name,
           static_cast<double>(properties.totalGlobalMem) * 1e-9, properties.major, properties.minor);
  return std::make_unique<CudaBackend>(options);
}

}  // namespace lockstep::cuda
