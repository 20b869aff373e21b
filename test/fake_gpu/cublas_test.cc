// Matrix products on the fake device: what is computed, and what is refused with a reason.
#include <cublas_v2.h>

#include <string>
#include <vector>

#include "test/backend/cuda_on_host/emulate.h"
#include "test/catch.h"
#include "test/fake_gpu/device_floats.h"
#include "test/fake_gpu/order.h"

using namespace lockstep::fake_gpu;

namespace {

// C [3,2] = op(A) [3,4] op(B) [4,2], columns first.
constexpr int kM = 3, kN = 2, kK = 4;

struct Blas {
  cublasHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  DeviceFloats a{kM * kK, 1}, b{kK * kN, 1}, c{kM * kN}, workspace{64};

  Blas() {
    REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
  }
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas() {
    (void)cublasDestroy(handle);
    (void)cudaStreamDestroy(stream);
  }

  void give_stream() const { REQUIRE(cublasSetStream(handle, stream) == CUBLAS_STATUS_SUCCESS); }
  void give_workspace() const { REQUIRE(cublasSetWorkspace(handle, workspace.data, 256) == CUBLAS_STATUS_SUCCESS); }

  // What the product answers; nothing if it was taken.
  std::string multiply(cublasOperation_t transpose_a, int lda, cublasComputeType_t compute = CUBLAS_COMPUTE_32F,
                       cudaDataType type = CUDA_R_32F) const {
    const float one = 1, zero = 0;
    const cublasStatus_t status = cublasGemmEx(handle, transpose_a, CUBLAS_OP_N, kM, kN, kK, &one, a.data, type, lda,
                                               b.data, type, kK, &zero, c.data, type, kM, compute, CUBLAS_GEMM_DEFAULT);
    return status == CUBLAS_STATUS_SUCCESS ? "" : cublasGetStatusString(status);
  }
};

}  // namespace

TEST_CASE("a matrix product is of the matrices that the call describes, transposed or not") {
  const InOrder in_order("eager");
  const Blas blas;
  blas.give_stream();
  blas.give_workspace();
  for (const bool transposed : {false, true}) {
    INFO("A " << (transposed ? "transposed" : "as it is"));
    REQUIRE(blas.multiply(transposed ? CUBLAS_OP_T : CUBLAS_OP_N, transposed ? kK : kM).empty());
    REQUIRE(cudaStreamSynchronize(blas.stream) == cudaSuccess);
    const std::vector<float> c = blas.c.values(kM * kN);
    for (int row = 0; row < kM; ++row) {
      for (int column = 0; column < kN; ++column) {
        float sum = 0;
        for (int i = 0; i < kK; ++i) {
          sum += static_cast<float>(transposed ? row * kK + i : i * kM + row) * static_cast<float>(column * kK + i);
        }
        CHECK(c[static_cast<size_t>(column * kM + row)] == sum);
      }
    }
  }
}

TEST_CASE("a matrix product without a stream or a workspace is refused") {
  const InOrder in_order("eager");
  const Blas blas;
  CHECK_THAT(blas.multiply(CUBLAS_OP_N, kM), ContainsSubstring("a product before cublasSetStream"));
  blas.give_stream();
  CHECK_THAT(blas.multiply(CUBLAS_OP_N, kM), ContainsSubstring("a product before cublasSetWorkspace"));
  blas.give_workspace();
  CHECK(blas.multiply(CUBLAS_OP_N, kM).empty());
  blas.give_stream();  // takes the workspace back
  CHECK_THAT(blas.multiply(CUBLAS_OP_N, kM), ContainsSubstring("or after a later cublasSetStream"));
}

TEST_CASE("a matrix whose leading dimension is wrong is refused by its name") {
  const InOrder in_order("eager");
  const Blas blas;
  blas.give_stream();
  blas.give_workspace();
  CHECK_THAT(blas.multiply(CUBLAS_OP_N, kM - 1), ContainsSubstring("A has columns of 3 elements that begin every 2"));
  CHECK_THAT(blas.multiply(CUBLAS_OP_N, kM + 1),
             ContainsSubstring("A: 60 bytes at") && ContainsSubstring("do not lie in one allocation"));
}

TEST_CASE("a compute type that does not fit the elements is refused") {
  const InOrder in_order("eager");
  const Blas blas;
  blas.give_stream();
  blas.give_workspace();
  CHECK(blas.multiply(CUBLAS_OP_N, kM, CUBLAS_COMPUTE_32F_PEDANTIC).empty());
  CHECK(blas.multiply(CUBLAS_OP_N, kM, CUBLAS_COMPUTE_32F_FAST_TF32).empty());
  CHECK(blas.multiply(CUBLAS_OP_N, kM, CUBLAS_COMPUTE_32F, CUDA_R_16BF).empty());
  for (const cublasComputeType_t compute :
       {CUBLAS_COMPUTE_16F, CUBLAS_COMPUTE_64F, CUBLAS_COMPUTE_32I, CUBLAS_COMPUTE_32F_FAST_16F}) {
    CHECK_THAT(blas.multiply(CUBLAS_OP_N, kM, compute), ContainsSubstring("for elements of 4 bytes"));
  }
  for (const cublasComputeType_t compute : {CUBLAS_COMPUTE_16F, CUBLAS_COMPUTE_32F_FAST_TF32}) {
    CHECK_THAT(blas.multiply(CUBLAS_OP_N, kM, compute, CUDA_R_16F), ContainsSubstring("for elements of 2 bytes"));
  }
}

TEST_CASE("after a fault of the device a matrix product fails with the text of that fault") {
  const InOrder in_order("eager");
  const Blas blas;
  blas.give_stream();
  blas.give_workspace();
  launch_kernel({"parting", dim3(1), dim3(8)}, blas.stream, [] {
    if (threadIdx.x > 2) __syncthreads();
  });
  CHECK_THAT(blas.multiply(CUBLAS_OP_N, kM), ContainsSubstring("parting on stream"));
}
