// Batch norm, of one rank's samples and of all ranks'.
#include "backend/cuda/check.h"
#include "backend/cuda/context.h"
#include "backend/cuda/launchers.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

// The vectors of a batch norm stay float32 whatever the images are.
void expect_float_vectors(const Op& op, Descs vectors) {
  for (const TensorDesc& desc : vectors) {
    if (desc.dtype != DType::f32)
      fail(ExitCode::config, "{} of {} channel values", op_name(op), dtype_name(desc.dtype));
  }
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context&, const BatchNorm& op, Descs inputs, Descs) {
  expect_element(op, inputs[0].dtype);
  expect_float_vectors(op, inputs.subspan(1));
  const Rows shape = rows_of(inputs[0]);
  const auto body = [op, shape, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_norm(stream, dtype,
                {.shape = shape,
                 .epsilon = static_cast<float>(op.epsilon),
                 .relu = op.relu,
                 .x = input(args, 0),
                 .scale = input<float>(args, 1),
                 .shift = input<float>(args, 2),
                 .y = output(args, 0),
                 .mean = output<float>(args, 1),
                 .var = output<float>(args, 2),
                 .saved = output<float>(args, 3),
                 .workspace = args.workspace});
  };
  return make_launch_kernel("norm", body, channel_sums_bytes(shape));
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormGrad& op, Descs inputs, Descs) {
  expect_alike(op, inputs.first(2));
  expect_float_vectors(op, inputs.subspan(2, 3));
  const Rows shape = rows_of(inputs[0]);
  const auto body = [op, shape, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_norm_grad(stream, dtype,
                     {.shape = shape,
                      .epsilon = static_cast<float>(op.epsilon),
                      .relu = op.relu,
                      .x = input(args, 0),
                      .dy = input(args, 1),
                      .mean = input<float>(args, 3),
                      .var = input<float>(args, 4),
                      .saved = input<float>(args, 5),
                      .dx = output(args, 0),
                      .dscale = output<float>(args, 1),
                      .dshift = output<float>(args, 2),
                      .workspace = args.workspace});
  };
  const size_t coefficients = static_cast<size_t>(2 * shape.channels) * sizeof(float);
  return make_launch_kernel("norm", body, channel_sums_bytes(shape) + coefficients);
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormInference& op, Descs inputs, Descs) {
  expect_element(op, inputs[0].dtype);
  expect_float_vectors(op, inputs.subspan(1));
  const Rows shape = rows_of(inputs[0]);
  return make_launch_kernel("norm", [op, shape, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_norm_inference(stream, dtype,
                          {.shape = shape,
                           .epsilon = static_cast<float>(op.epsilon),
                           .relu = op.relu,
                           .x = input(args, 0),
                           .scale = input<float>(args, 1),
                           .shift = input<float>(args, 2),
                           .mean = input<float>(args, 3),
                           .var = input<float>(args, 4),
                           .y = output(args, 0)});
  });
}

std::unique_ptr<Kernel> compile(const Context&, const BatchMoments& op, Descs inputs, Descs) {
  expect_float_vectors(op, inputs);
  const auto samples = static_cast<float>(op.samples);
  const auto body = [channels = inputs[0].shape.elements(), samples](const KernelArgs& args, cudaStream_t stream) {
    launch_moments(stream, channels, samples, {input<float>(args, 0), input<float>(args, 1), input<float>(args, 2)},
                   {output<float>(args, 0), output<float>(args, 1)});
  };
  return make_launch_kernel("moments", body);
}

std::unique_ptr<Kernel> compile(const Context&, const SyncBatchNormSums& op, Descs inputs, Descs) {
  expect_element(op, inputs[0].dtype);
  expect_float_vectors(op, inputs.subspan(1));
  const Rows shape = rows_of(inputs[0]);
  const auto body = [shape, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_sync_norm_sums(stream, dtype, shape, input(args, 0), input<float>(args, 1), output<float>(args, 0),
                          args.workspace);
  };
  return make_launch_kernel("norm", body, channel_sums_bytes(shape));
}

std::unique_ptr<Kernel> compile(const Context&, const SyncBatchNorm& op, Descs inputs, Descs) {
  expect_element(op, inputs[0].dtype);
  expect_float_vectors(op, inputs.subspan(1));
  const Rows shape = rows_of(inputs[0]);
  return make_launch_kernel("norm", [op, shape, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_sync_norm(stream, dtype,
                     {.shape = shape,
                      .values = static_cast<double>(op.values),
                      .epsilon = static_cast<float>(op.epsilon),
                      .relu = op.relu,
                      .x = input(args, 0),
                      .scale = input<float>(args, 1),
                      .shift = input<float>(args, 2),
                      .running_mean = input<float>(args, 3),
                      .sums = input<float>(args, 4),
                      .y = output(args, 0),
                      .mean = output<float>(args, 1),
                      .var = output<float>(args, 2),
                      .saved = output<float>(args, 3)});
  });
}

std::unique_ptr<Kernel> compile(const Context&, const SyncBatchNormGradSums& op, Descs inputs, Descs) {
  expect_alike(op, inputs.first(2));
  expect_float_vectors(op, inputs.subspan(2, 3));
  const Rows shape = rows_of(inputs[0]);
  const auto body = [op, shape, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_sync_norm_grad_sums(stream, dtype,
                               {.shape = shape,
                                .epsilon = static_cast<float>(op.epsilon),
                                .relu = op.relu,
                                .x = input(args, 0),
                                .dy = input(args, 1),
                                .mean = input<float>(args, 3),
                                .var = input<float>(args, 4),
                                .saved = input<float>(args, 5),
                                .dscale = output<float>(args, 0),
                                .dshift = output<float>(args, 1),
                                .own_sums = output<float>(args, 2),
                                .workspace = args.workspace});
  };
  return make_launch_kernel("norm", body, channel_sums_bytes(shape));
}

std::unique_ptr<Kernel> compile(const Context&, const SyncBatchNormGrad& op, Descs inputs, Descs) {
  expect_alike(op, inputs.first(2));
  expect_float_vectors(op, inputs.subspan(2, 3));
  const Rows shape = rows_of(inputs[0]);
  const auto body = [op, shape, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_sync_norm_grad(stream, dtype,
                          {.shape = shape,
                           .values = static_cast<double>(op.values),
                           .epsilon = static_cast<float>(op.epsilon),
                           .relu = op.relu,
                           .x = input(args, 0),
                           .dy = input(args, 1),
                           .mean = input<float>(args, 3),
                           .var = input<float>(args, 4),
                           .saved = input<float>(args, 5),
                           .sums = input<float>(args, 6),
                           .dx = output(args, 0),
                           .workspace = args.workspace});
  };
  return make_launch_kernel("norm", body, static_cast<size_t>(2 * shape.channels) * sizeof(float));
}

std::unique_ptr<Kernel> compile(const Context&, const SumOverRanks&, Descs inputs, Descs) {
  return make_launch_kernel("copy", [bytes = packed_bytes(inputs[0])](const KernelArgs& args, cudaStream_t stream) {
    if (input(args, 0) == output(args, 0)) return;
    check(cudaMemcpyAsync(output(args, 0), input(args, 0), bytes, cudaMemcpyDeviceToDevice, stream), "a copy of sums");
  });
}

}  // namespace lockstep::cuda
