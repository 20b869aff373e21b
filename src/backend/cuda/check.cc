#include "backend/cuda/check.h"

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"

namespace lockstep::cuda {

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  (void)
      cudaGetLastError();  // clears the error that is thrown here, or the check of a later launch would report it again
  if (status == cudaErrorMemoryAllocation) {
    fail(ExitCode::internal, "out of GPU memory: {}; lower train.batch_size", what);
  }
  fail(ExitCode::internal, "{}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

void check(cublasStatus_t status, std::string_view what) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(ExitCode::internal, "{}: cuBLAS: {}", what, cublasGetStatusString(status));
}

void check(cudnnStatus_t status, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char details[512] = "";
  cudnnGetLastErrorString(details, sizeof details);
  fail(ExitCode::internal, "{}: cuDNN: {} {}", what, cudnnGetErrorString(status), details);
}

void check_noexcept(cudaError_t status, std::string_view what) noexcept {
  if (status != cudaSuccess) log_warning("{}: {}", what, cudaGetErrorString(status));
}

}  // namespace lockstep::cuda
