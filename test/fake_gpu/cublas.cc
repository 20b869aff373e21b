// cuBLAS of the fake device: the matrix product of linear layers, and the rules of the handle that it runs with.
#include <cublas_v2.h>
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "test/fake_gpu/element.h"
#include "test/fake_gpu/memory.h"
#include "test/fake_gpu/runtime.h"

namespace lockstep::fake_gpu {
namespace {

struct BlasHandle {
  bool has_stream = false;
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  bool multiplied = false;
};
BlasHandle& handle_of(cublasHandle_t handle) { return *reinterpret_cast<BlasHandle*>(handle); }

// Columns first, as cuBLAS counts: element (row, column) of op(matrix).
struct Matrix {
  const void* data = nullptr;
  Element element = Element::f32;
  bool transposed = false;
  int64_t leading = 0;
  int64_t rows = 0, columns = 0;  // of op(matrix)

  int64_t stored_rows() const { return transposed ? columns : rows; }
  int64_t stored_columns() const { return transposed ? rows : columns; }
  size_t bytes() const {
    return static_cast<size_t>(leading * (stored_columns() - 1) + stored_rows()) * bytes_of(element);
  }
  float at(int64_t row, int64_t column) const {
    return read(element, data, transposed ? row * leading + column : column * leading + row);
  }
};

[[noreturn]] void refuse(const std::string& why) { throw Refused(cudaErrorInvalidValue, "cuBLAS: " + why); }

Element element_of(cudaDataType type) {
  if (type == CUDA_R_32F) return Element::f32;
  if (type == CUDA_R_16BF) return Element::bf16;
  if (type != CUDA_R_16F) refuse(fmt::format("elements of type {}", static_cast<int>(type)));
  return Element::f16;
}

void expect_matrix(const char* name, const Matrix& matrix) {
  if (matrix.leading < matrix.stored_rows()) {
    refuse(
        fmt::format("{} has columns of {} elements that begin every {}", name, matrix.stored_rows(), matrix.leading));
  }
  if (const std::string trouble = trouble_with(matrix.data, matrix.bytes()); !trouble.empty()) {
    refuse(fmt::format("{}: {}", name, trouble));
  }
}

// In plain rows, so that the inner loop runs along memory.
std::vector<float> rows_of(const Matrix& matrix) {
  std::vector<float> rows(static_cast<size_t>(matrix.rows * matrix.columns));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (int64_t c = 0; c < matrix.columns; ++c) rows[static_cast<size_t>(r * matrix.columns + c)] = matrix.at(r, c);
  }
  return rows;
}

struct Product {
  Matrix a, b;  // [m,k], [k,n]
  Matrix c;     // [m,n]
  float alpha, beta;

  void run() const {
    const std::vector<float> left = rows_of(a), right = rows_of(b);
    std::vector<double> sums(static_cast<size_t>(c.columns));
    auto* const out = const_cast<void*>(c.data);
    for (int64_t row = 0; row < c.rows; ++row) {
      std::fill(sums.begin(), sums.end(), 0.0);
      for (int64_t i = 0; i < a.columns; ++i) {
        const double factor = left[static_cast<size_t>(row * a.columns + i)];
        const float* const line = right.data() + i * c.columns;
        for (int64_t column = 0; column < c.columns; ++column)
          sums[static_cast<size_t>(column)] += factor * line[column];
      }
      for (int64_t column = 0; column < c.columns; ++column) {
        const float before = beta == 0 ? 0 : beta * c.at(row, column);
        write(c.element, out, column * c.leading + row,
              static_cast<float>(alpha * sums[static_cast<size_t>(column)]) + before);
      }
    }
  }
};

// Sums are of doubles for each of these, so a type that asks for less is not told from one that asks for more.
void expect_compute_type(cublasComputeType_t type, Element element) {
  const bool is_float32 = type == CUBLAS_COMPUTE_32F || type == CUBLAS_COMPUTE_32F_PEDANTIC;
  if (is_float32 || (type == CUBLAS_COMPUTE_32F_FAST_TF32 && element == Element::f32)) return;
  refuse(fmt::format("compute type {} for elements of {} bytes", static_cast<int>(type), bytes_of(element)));
}

// Without a workspace of its own cuBLAS allocates one when it first wants it, which a capture does not allow.
void expect_ready(const BlasHandle& handle) {
  if (!handle.has_stream) refuse("a product before cublasSetStream");
  if (!handle.workspace)
    refuse("a product before cublasSetWorkspace, or after a later cublasSetStream, which takes it back");
  if (const std::string trouble = trouble_with(handle.workspace, handle.workspace_bytes); !trouble.empty()) {
    refuse("the workspace: " + trouble);
  }
}

thread_local std::string error_text;  // of this thread's last call that failed

cublasStatus_t status_of(cudaError_t status) {
  if (status == cudaSuccess) return CUBLAS_STATUS_SUCCESS;
  error_text = cudaGetErrorString(status);
  return status == cudaErrorInvalidValue ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace
}  // namespace lockstep::fake_gpu

using namespace lockstep::fake_gpu;

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  return status_of(call([&](Lock&) {
    expect_no_capture("cublasCreate");
    *handle = reinterpret_cast<cublasHandle_t>(new BlasHandle);
  }));
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete &handle_of(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  return status_of(call([&](Lock&) {
    (void)stream_of(stream);
    handle_of(handle) = {.has_stream = true, .stream = stream};
  }));
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes) {
  return status_of(call([&](Lock&) {
    if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) refuse("a workspace that is not aligned to 256 bytes");
    handle_of(handle).workspace = workspace;
    handle_of(handle).workspace_bytes = bytes;
  }));
}
cublasStatus_t cublasSetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : error_text.c_str();
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transpose_a, cublasOperation_t transpose_b, int m,
                            int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda, const void* b,
                            cudaDataType b_type, int ldb, const void* beta, void* c, cudaDataType c_type, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
  return status_of(call([&](Lock&) {
    BlasHandle& blas = handle_of(handle);
    expect_ready(blas);
    if (!std::exchange(blas.multiplied, true)) expect_no_capture("cuBLAS's first product, which may load kernels,");
    // The factors are floats on the host, which are read at the call.
    const Product product{.a = {a, element_of(a_type), transpose_a != CUBLAS_OP_N, lda, m, k},
                          .b = {b, element_of(b_type), transpose_b != CUBLAS_OP_N, ldb, k, n},
                          .c = {c, element_of(c_type), false, ldc, m, n},
                          .alpha = *static_cast<const float*>(alpha),
                          .beta = *static_cast<const float*>(beta)};
    if (b_type != a_type || c_type != a_type)
      refuse("matrices of several element types have no fake; write one in test/fake_gpu");
    expect_compute_type(compute, product.a.element);
    expect_matrix("A", product.a);
    expect_matrix("B", product.b);
    expect_matrix("C", product.c);
    submit(stream_of(blas.stream),
           {.what = fmt::format("a product {}x{}x{}", m, n, k), .run = [product] { product.run(); }});
  }));
}
}
