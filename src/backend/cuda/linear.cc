// Fully connected layers by cuBLAS; bias and its gradient by kernels of our own. cuBLAS counts columns first, so that
// our row-major matrices are its transposed ones: y^T = W x^T.
#include "backend/cuda/check.h"
#include "backend/cuda/context.h"
#include "backend/cuda/pointwise.h"
#include "backend/cuda/rows.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

cudaDataType_t data_type(DType dtype) {
  if (dtype == DType::bf16) return CUDA_R_16BF;
  return dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

cublasComputeType_t compute_type(DType dtype, bool tf32) {
  if (dtype != DType::f32) return CUBLAS_COMPUTE_32F;
  return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F_PEDANTIC;
}

// C [m,n] = op(A) [m,k] op(B) [k,n], columns first; the leading dimension of a matrix is the length of our rows.
struct Product {
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  int64_t m = 0, n = 0, k = 0;
  int64_t row_a = 0, row_b = 0, row_c = 0;
};

struct Multiply {
  Product p;
  DType dtype;
  bool tf32;

  void operator()(CudaStream& stream, const void* a, const void* b, void* c) const {
    constexpr float kOne = 1, kZero = 0;
    const cudaDataType_t type = data_type(dtype);
    const auto narrow = [](int64_t value) { return static_cast<int>(value); };
    check(cublasGemmEx(stream.cublas(), p.transpose_a, p.transpose_b, narrow(p.m), narrow(p.n), narrow(p.k), &kOne, a,
                       type, narrow(p.row_a), b, type, narrow(p.row_b), &kZero, c, type, narrow(p.row_c),
                       compute_type(dtype, tf32), CUBLAS_GEMM_DEFAULT),
          "a matrix product");
  }
};

}  // namespace

std::unique_ptr<Kernel> compile(const Context& context, const Linear& op, Descs inputs, Descs outputs) {
  const DType dtype = inputs[0].dtype;
  expect_element(op, dtype);
  const int64_t batch = inputs[0].shape[0], in = inputs[0].shape[1], out = outputs[0].shape[1];
  const Multiply multiply{
      {.transpose_a = CUBLAS_OP_T, .m = out, .n = batch, .k = in, .row_a = in, .row_b = in, .row_c = out},
      dtype,
      context.tf32};
  const auto body = [multiply, op, dtype, rows = Rows{batch, out}](const KernelArgs& args, cudaStream_t stream) {
    multiply(stream_of(args), args.inputs[1], args.inputs[0], args.outputs[0]);
    if (op.bias) launch_add_bias(stream, dtype, rows, args.inputs[2], args.outputs[0]);
  };
  return make_launch_kernel("cublas", body);
}

std::unique_ptr<Kernel> compile(const Context& context, const LinearGradInput& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  const int64_t batch = inputs[0].shape[0], out = inputs[0].shape[1], in = outputs[0].shape[1];
  const Multiply multiply{
      {.m = in, .n = batch, .k = out, .row_a = in, .row_b = out, .row_c = in}, inputs[0].dtype, context.tf32};
  return make_launch_kernel("cublas", [multiply](const KernelArgs& args, cudaStream_t) {
    multiply(stream_of(args), args.inputs[1], args.inputs[0], args.outputs[0]);
  });
}

std::unique_ptr<Kernel> compile(const Context& context, const LinearGradWeights& op, Descs inputs, Descs) {
  const DType dtype = inputs[0].dtype;
  expect_element(op, dtype);
  const int64_t batch = inputs[0].shape[0], in = inputs[0].shape[1], out = inputs[1].shape[1];
  const Multiply multiply{
      {.transpose_b = CUBLAS_OP_T, .m = in, .n = out, .k = batch, .row_a = in, .row_b = out, .row_c = in},
      dtype,
      context.tf32};
  const Rows rows{batch, out};
  const auto body = [multiply, op, dtype, rows](const KernelArgs& args, cudaStream_t stream) {
    multiply(stream_of(args), args.inputs[0], args.inputs[1], args.outputs[0]);
    if (op.bias) launch_channel_sums(stream, dtype, rows, args.inputs[1], args.outputs[1], sums_memory(args));
  };
  return make_launch_kernel("cublas", body, op.bias ? channel_sums_bytes(rows) : 0);
}

}  // namespace lockstep::cuda
