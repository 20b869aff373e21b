// Status codes of the CUDA libraries turned into errors: check(status, "what was being done").
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <string_view>

namespace lockstep::cuda {

// Each throws Error(internal) that names what was being done and the library's reason.
void check(cudaError_t status, std::string_view what);
void check(cublasStatus_t status, std::string_view what);
void check(cudnnStatus_t status, std::string_view what);

// For destructors: logs instead.
void check_noexcept(cudaError_t status, std::string_view what) noexcept;

}  // namespace lockstep::cuda
