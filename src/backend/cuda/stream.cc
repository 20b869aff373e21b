#include "backend/cuda/stream.h"

#include "backend/cuda/check.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/rows.h"
#include "lockstep/base/log.h"

namespace lockstep::cuda {
namespace {

// The size that cuBLAS recommends for Hopper. We provide this workspace so that cuBLAS does not allocate, above all not
// during a capture.
constexpr size_t kCublasWorkspaceBytes = size_t{32} << 20;

}  // namespace

void EventTraits::destroy(type event) noexcept { check_noexcept(cudaEventDestroy(event), "destroying an event"); }
void StreamTraits::destroy(type stream) noexcept { check_noexcept(cudaStreamDestroy(stream), "destroying a stream"); }
void CublasTraits::destroy(type handle) noexcept {
  if (cublasDestroy(handle) != CUBLAS_STATUS_SUCCESS) log_warning("cannot destroy a cuBLAS handle");
}

CudnnHandle make_cudnn_handle() {
  cudnnHandle_t handle = nullptr;
  check(cudnnCreate(&handle), "starting cuDNN");
  return {handle, [](cudnnHandle_t made) {
            if (cudnnDestroy(made) != CUDNN_STATUS_SUCCESS) log_warning("cannot destroy a cuDNN handle");
          }};
}

CudaEvent::CudaEvent(bool timed) {
  cudaEvent_t event = nullptr;
  // A host that waits for the device leaves its core to the loader.
  const unsigned flags = cudaEventBlockingSync | (timed ? 0U : cudaEventDisableTiming);
  check(cudaEventCreateWithFlags(&event, flags), "making an event");
  event_.reset(event);
}

bool CudaEvent::passed() const {
  const cudaError_t status = cudaEventQuery(event_.get());
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();  // "not ready" is an answer; the check of the next launch must not report it as an error
    return false;
  }
  check(status, "the work before an event");
  return true;
}

void CudaEvent::wait() const { check(cudaEventSynchronize(event_.get()), "the work before an event"); }

double CudaEvent::seconds_since(const Event& earlier) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(earlier).get(), get()),
        "the time between two events");
  return milliseconds * 1e-3;
}

CudaStream::CudaStream(CudnnHandle cudnn) : cudnn_(std::move(cudnn)) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  stream_.reset(stream);
  if (cudnn_) check(cudnnSetStream(cudnn_.get(), stream), "giving cuDNN its stream");
}

void CudaStream::wait() { check(cudaStreamSynchronize(stream_.get()), "the work of a stream"); }

void CudaStream::record(Event& event) {
  check(cudaEventRecord(static_cast<CudaEvent&>(event).get(), stream_.get()), "recording an event");
}

void CudaStream::wait_for(const Event& event) {
  check(cudaStreamWaitEvent(stream_.get(), static_cast<const CudaEvent&>(event).get()), "waiting for an event");
}

cudnnHandle_t CudaStream::cudnn() {
  if (!cudnn_) {
    cudnn_ = make_cudnn_handle();
    check(cudnnSetStream(cudnn_.get(), stream_.get()), "giving cuDNN its stream");
  }
  return cudnn_.get();
}

unsigned* CudaStream::tickets() {
  if (!tickets_.data()) tickets_ = allocate_device(kTickets * sizeof(unsigned));
  return tickets_.as<unsigned>();
}

cublasHandle_t CudaStream::cublas() {
  if (!cublas_) {
    cublasHandle_t handle = nullptr;
    check(cublasCreate(&handle), "starting cuBLAS");
    cublas_.reset(handle);
    check(cublasSetStream(handle, stream_.get()), "giving cuBLAS its stream");
    cublas_workspace_ = allocate_device(kCublasWorkspaceBytes);
    check(cublasSetWorkspace(handle, cublas_workspace_.data(), kCublasWorkspaceBytes), "giving cuBLAS memory");
    // Products of 16-bit floats are always summed in float32. For float32 each product states its own precision.
    constexpr int kMath = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    check(cublasSetMathMode(handle, static_cast<cublasMath_t>(kMath)), "setting cuBLAS's precision");
  }
  return cublas_.get();
}

}  // namespace lockstep::cuda
