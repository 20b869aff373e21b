#include "backend/cuda/pool.h"

#include "backend/cuda/context.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

PoolLaunch launch_of(const Window& window, const Shape& image, const Shape& out) {
  const int64_t elements = std::max(image.elements(), out.elements());
  if (elements >= int64_t{1} << 31) {
    fail(ExitCode::config, "a pool over {} elements; lower train.batch_size", elements);
  }
  return {.window = window, .image = image, .out = out};
}

// A pool's two images, either of which may be a channel slice.
struct Pool {
  PoolLaunch launch;
  DType dtype;
  int64_t from, to;  // elements from a pixel to the next

  RowsIn in(const KernelArgs& args) const { return {input(args, 0), from}; }
  RowsOut out(const KernelArgs& args) const { return {output(args, 0), to}; }
};

template <class Operation>
Pool pool_of(const Operation& op, const PoolLaunch& launch, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  return {launch, inputs[0].dtype, row_elements(inputs[0]), row_elements(outputs[0])};
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context&, const MaxPool& op, Descs inputs, Descs outputs) {
  if (op.window.kernel_h * op.window.kernel_w > kNoMaximum) {
    fail(ExitCode::config, "a max pool over {} x {} positions; there is room for {}", op.window.kernel_h,
         op.window.kernel_w, kNoMaximum);
  }
  const Pool pool = pool_of(op, launch_of(op.window, inputs[0].shape, outputs[0].shape), inputs, outputs);
  return make_launch_kernel("pool", [pool](const KernelArgs& args, cudaStream_t stream) {
    launch_max_pool(stream, pool.dtype, pool.launch, pool.in(args), pool.out(args), output<uint8_t>(args, 1));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const MaxPoolGrad& op, Descs inputs, Descs outputs) {
  const Pool pool = pool_of(op, launch_of(op.window, op.input, inputs[0].shape), inputs, outputs);
  return make_launch_kernel("pool", [pool](const KernelArgs& args, cudaStream_t stream) {
    launch_max_pool_grad(stream, pool.dtype, pool.launch, pool.in(args), input<uint8_t>(args, 1), pool.out(args));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const MaxPoolGradSum& op, Descs inputs, Descs outputs) {
  const Pool pool = pool_of(op, launch_of(op.window, op.input, inputs[0].shape), inputs, outputs);
  return make_launch_kernel("pool", [pool](const KernelArgs& args, cudaStream_t stream) {
    launch_max_pool_grad(stream, pool.dtype, pool.launch, pool.in(args), input<uint8_t>(args, 1), pool.out(args),
                         args.inputs.subspan(2));
  });
}

bool can(const Context&, const MaxPoolGradSum&, Descs inputs, Descs) { return inputs.size() <= 2 + kMaxSummands; }

std::unique_ptr<Kernel> compile(const Context&, const AvgPool& op, Descs inputs, Descs outputs) {
  Pool pool = pool_of(op, launch_of(op.window, inputs[0].shape, outputs[0].shape), inputs, outputs);
  pool.launch.count_include_pad = op.count_include_pad;
  return make_launch_kernel("pool", [pool](const KernelArgs& args, cudaStream_t stream) {
    launch_avg_pool(stream, pool.dtype, pool.launch, pool.in(args), pool.out(args));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const AvgPoolGrad& op, Descs inputs, Descs outputs) {
  Pool pool = pool_of(op, launch_of(op.window, op.input, inputs[0].shape), inputs, outputs);
  pool.launch.count_include_pad = op.count_include_pad;
  return make_launch_kernel("pool", [pool](const KernelArgs& args, cudaStream_t stream) {
    launch_avg_pool_grad(stream, pool.dtype, pool.launch, pool.in(args), pool.out(args));
  });
}

}  // namespace lockstep::cuda
