#include "test/models/counting_device.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace lockstep::test {
namespace {

int capability_major = 0;
DeviceWork work;
std::string refused;  // the first kernel whose launch a GPU would refuse

// By the host's function: filled by what nvcc puts before main().
std::unordered_map<const void*, std::string>& kernel_names() {
  static std::unordered_map<const void*, std::string> names;
  return names;
}

// "map_rows" of "_ZN8lockstep4cuda...": the name alone.
std::string plain_name(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(mangled, nullptr, nullptr, &status),
                                                         std::free);
  std::string name = status == 0 ? text.get() : mangled;
  int depth = 0;
  size_t end = name.size(), begin = 0;
  for (size_t i = 0; i < name.size(); ++i) {  // its parameters, or template arguments, begin
    if (name.compare(i, 21, "(anonymous namespace)") == 0)
      i += 20;
    else if (name[i] == '<' || name[i] == '(') {
      if (depth++ == 0) {
        end = i;
        break;
      }
    }
  }
  name.resize(end);
  begin = name.find_last_of(": ");
  return begin == std::string::npos ? name : name.substr(begin + 1);
}

struct Launch {
  dim3 grid, block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};
Launch configured;

bool accepted(const dim3& grid, const dim3& block, size_t shared_bytes) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  return threads > 0 && threads <= 1024 && block.z <= 64 && grid.x > 0 && grid.y > 0 && grid.z > 0 &&
         grid.x <= 0x7fffffffU && grid.y <= 65535 && grid.z <= 65535 && shared_bytes <= 49152;
}

template <class Handle>
Handle some_handle() {
  static char any;
  return reinterpret_cast<Handle>(&any);
}

}  // namespace

DeviceWork take_device_work() {
  if (!refused.empty()) throw std::runtime_error(refused + ": a GPU would refuse the launch");
  return std::exchange(work, {});
}

void set_device_capability(int major) { capability_major = major; }

void* device_address(size_t bytes) {
  static uintptr_t next = uintptr_t{1} << 44;
  const uintptr_t at = next;
  next += (bytes + 511) / 256 * 256;
  return reinterpret_cast<void*>(at);
}

}  // namespace lockstep::test

using namespace lockstep::test;

extern "C" {

// ---- what nvcc calls
void** __cudaRegisterFatBinary(void*) {
  static void* none = nullptr;
  return &none;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  kernel_names()[function] = plain_name(name);
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st* stream) {
  configured = {grid, block, shared_bytes, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  *grid = configured.grid;
  *block = configured.block;
  *shared_bytes = configured.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = configured.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**, size_t shared_bytes, cudaStream_t) {
  const std::string& name = kernel_names()[function];
  if (!accepted(grid, block, shared_bytes) && refused.empty()) refused = name;
  ++work.kernels[name];
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                               cudaStream_t stream) {
  return cudaLaunchKernel(static_cast<const void*>(kernel), grid, block, arguments, shared_bytes, stream);
}

// ---- the runtime
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? capability_major : 0;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = some_handle<cudaStream_t>();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = device_address(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void*) { return cudaSuccess; }
cudaError_t cudaMemset(void*, int, size_t) { return cudaSuccess; }
cudaError_t cudaMemcpy(void*, const void*, size_t, cudaMemcpyKind) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) {
  ++work.copies;
  return cudaSuccess;
}

// ---- cuDNN: plans are its own, for a described device; they are not executed
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  *handle = some_handle<cudnnHandle_t>();
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) {
  ++work.convolutions;
  return CUDNN_STATUS_SUCCESS;
}

// ---- cuBLAS
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = some_handle<cublasHandle_t>();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetStream_v2(cublasHandle_t, cudaStream_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                            const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*,
                            cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t) {
  ++work.products;
  return CUBLAS_STATUS_SUCCESS;
}
}
