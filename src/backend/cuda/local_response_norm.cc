#include "backend/cuda/local_response_norm.h"

#include "backend/cuda/context.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

constexpr int64_t kMaxLrnChannels = 6144;  // two lines of so many fit into a block's shared memory

LrnLaunch lrn_of(const auto& op, const TensorDesc& x) {
  if (x.shape.c() > kMaxLrnChannels) {
    fail(ExitCode::config, "local response normalization of {} channels; there is room for {}", x.shape.c(),
         kMaxLrnChannels);
  }
  return {.shape = rows_of(x),
          .size = op.size,
          .alpha_over_size = static_cast<float>(op.alpha / static_cast<double>(op.size)),
          .beta = static_cast<float>(op.beta),
          .k = static_cast<float>(op.k)};
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context&, const LocalResponseNorm& op, Descs inputs, Descs) {
  expect_element(op, inputs[0].dtype);
  const auto body = [lrn = lrn_of(op, inputs[0]), dtype = inputs[0].dtype](const KernelArgs& args,
                                                                           cudaStream_t stream) {
    launch_lrn(stream, dtype, lrn, input(args, 0), output(args, 0));
  };
  return make_launch_kernel("lrn", body);
}

std::unique_ptr<Kernel> compile(const Context&, const LocalResponseNormGrad& op, Descs inputs, Descs) {
  expect_alike(op, inputs);
  const auto body = [lrn = lrn_of(op, inputs[0]), dtype = inputs[0].dtype](const KernelArgs& args,
                                                                           cudaStream_t stream) {
    launch_lrn_grad(stream, dtype, lrn, input(args, 0), input(args, 1), output(args, 0));
  };
  return make_launch_kernel("lrn", body);
}

}  // namespace lockstep::cuda
