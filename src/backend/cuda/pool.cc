#include "backend/cuda/pool.h"

#include "backend/cuda/context.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

PoolLaunch pool_of(const Window& window, const Shape& image, const Shape& out) {
  const int64_t elements = std::max(image.elements(), out.elements());
  if (elements >= int64_t{1} << 31) {
    fail(ExitCode::config, "a pool over {} elements; lower train.batch_size", elements);
  }
  return {.window = window, .image = image, .out = out};
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context&, const MaxPool& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  if (op.window.kernel_h * op.window.kernel_w > kNoMaximum) {
    fail(ExitCode::config, "a max pool over {} x {} positions; there is room for {}", op.window.kernel_h,
         op.window.kernel_w, kNoMaximum);
  }
  const PoolLaunch pool = pool_of(op.window, inputs[0].shape, outputs[0].shape);
  return make_launch_kernel("pool", [pool, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_max_pool(stream, dtype, pool, input(args, 0), output(args, 0), output<uint8_t>(args, 1));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const MaxPoolGrad& op, Descs inputs, Descs) {
  expect_element(op, inputs[0].dtype);
  const PoolLaunch pool = pool_of(op.window, op.input, inputs[0].shape);
  return make_launch_kernel("pool", [pool, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_max_pool_grad(stream, dtype, pool, input(args, 0), input<uint8_t>(args, 1), output(args, 0));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const AvgPool& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  PoolLaunch pool = pool_of(op.window, inputs[0].shape, outputs[0].shape);
  pool.count_include_pad = op.count_include_pad;
  return make_launch_kernel("pool", [pool, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_avg_pool(stream, dtype, pool, input(args, 0), output(args, 0));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const AvgPoolGrad& op, Descs inputs, Descs) {
  expect_element(op, inputs[0].dtype);
  PoolLaunch pool = pool_of(op.window, op.input, inputs[0].shape);
  pool.count_include_pad = op.count_include_pad;
  return make_launch_kernel("pool", [pool, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_avg_pool_grad(stream, dtype, pool, input(args, 0), output(args, 0));
  });
}

}  // namespace lockstep::cuda
