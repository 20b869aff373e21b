// Batch norm, of one rank's samples and of all ranks'.
#include "backend/cuda/batch_norm.h"
#include "backend/cuda/context.h"
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

// An image and its gradient, each of which may be a slice.
void expect_gradient(const Op& op, const TensorDesc& x, const TensorDesc& dy) {
  expect_element(op, x.dtype);
  require(x.shape == dy.shape && x.dtype == dy.dtype && x.format == dy.format, "{} of {} and {}", op_name(op),
          x.to_string(), dy.to_string());
}

int64_t row_elements(const TensorDesc& desc) {
  return desc.parent_channels > 0 ? desc.parent_channels : desc.shape.c();
}
RowsIn rows_in(const KernelArgs& args, size_t i, int64_t row) { return {input(args, i), row}; }
RowsOut rows_out(const KernelArgs& args, size_t i, int64_t row) { return {output(args, i), row}; }
// Of a workspace that begins with `sums` bytes of partial sums.
float* coefficients_in(const KernelArgs& args, size_t sums) {
  return reinterpret_cast<float*>(static_cast<char*>(args.workspace) + sums);
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context&, const BatchNorm& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  expect_float_vectors(op, inputs.subspan(1));
  const Rows shape = rows_of(inputs[0]);
  const auto body = [op, shape, dtype = inputs[0].dtype, x = row_elements(inputs[0]), y = row_elements(outputs[0])](
                        const KernelArgs& args, cudaStream_t stream) {
    launch_norm(stream, dtype,
                {.shape = shape,
                 .epsilon = static_cast<float>(op.epsilon),
                 .relu = op.relu,
                 .x = rows_in(args, 0, x),
                 .scale = input<float>(args, 1),
                 .shift = input<float>(args, 2),
                 .y = rows_out(args, 0, y),
                 .mean = output<float>(args, 1),
                 .var = output<float>(args, 2),
                 .saved = output<float>(args, 3),
                 .memory = sums_memory(args)});
  };
  return make_launch_kernel("norm", body, channel_sums_bytes(shape));
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormGrad& op, Descs inputs, Descs outputs) {
  expect_gradient(op, inputs[0], inputs[1]);
  expect_float_vectors(op, inputs.subspan(2, 3));
  const Rows shape = rows_of(inputs[0]);
  const auto body = [op, shape, dtype = inputs[0].dtype, x = row_elements(inputs[0]), dy = row_elements(inputs[1]),
                     dx = row_elements(outputs[0])](const KernelArgs& args, cudaStream_t stream) {
    launch_norm_grad(stream, dtype,
                     {.shape = shape,
                      .epsilon = static_cast<float>(op.epsilon),
                      .relu = op.relu,
                      .x = rows_in(args, 0, x),
                      .dy = rows_in(args, 1, dy),
                      .mean = input<float>(args, 3),
                      .var = input<float>(args, 4),
                      .saved = input<float>(args, 5),
                      .dx = rows_out(args, 0, dx),
                      .dscale = output<float>(args, 1),
                      .dshift = output<float>(args, 2),
                      .memory = sums_memory(args),
                      .coefficients = coefficients_in(args, channel_sums_bytes(shape))});
  };
  const size_t coefficients = static_cast<size_t>(2 * shape.channels) * sizeof(float);
  return make_launch_kernel("norm", body, channel_sums_bytes(shape) + coefficients);
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormInference& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  expect_float_vectors(op, inputs.subspan(1));
  const Rows shape = rows_of(inputs[0]);
  return make_launch_kernel("norm", [op, shape, dtype = inputs[0].dtype, x = row_elements(inputs[0]),
                                     y = row_elements(outputs[0])](const KernelArgs& args, cudaStream_t stream) {
    launch_norm_inference(stream, dtype,
                          {.shape = shape,
                           .epsilon = static_cast<float>(op.epsilon),
                           .relu = op.relu,
                           .x = rows_in(args, 0, x),
                           .scale = input<float>(args, 1),
                           .shift = input<float>(args, 2),
                           .mean = input<float>(args, 3),
                           .var = input<float>(args, 4),
                           .y = rows_out(args, 0, y)});
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
  const auto body = [shape, dtype = inputs[0].dtype, x = row_elements(inputs[0])](const KernelArgs& args,
                                                                                  cudaStream_t stream) {
    launch_sync_norm_sums(stream, dtype, shape, rows_in(args, 0, x), input<float>(args, 1), output<float>(args, 0),
                          sums_memory(args));
  };
  return make_launch_kernel("norm", body, channel_sums_bytes(shape));
}

std::unique_ptr<Kernel> compile(const Context&, const SyncBatchNorm& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  expect_float_vectors(op, inputs.subspan(1));
  const Rows shape = rows_of(inputs[0]);
  return make_launch_kernel("norm", [op, shape, dtype = inputs[0].dtype, x = row_elements(inputs[0]),
                                     y = row_elements(outputs[0])](const KernelArgs& args, cudaStream_t stream) {
    launch_sync_norm(stream, dtype,
                     {.shape = shape,
                      .values = static_cast<double>(op.values),
                      .epsilon = static_cast<float>(op.epsilon),
                      .relu = op.relu,
                      .x = rows_in(args, 0, x),
                      .scale = input<float>(args, 1),
                      .shift = input<float>(args, 2),
                      .running_mean = input<float>(args, 3),
                      .sums = input<float>(args, 4),
                      .y = rows_out(args, 0, y),
                      .mean = output<float>(args, 1),
                      .var = output<float>(args, 2),
                      .saved = output<float>(args, 3)});
  });
}

std::unique_ptr<Kernel> compile(const Context&, const SyncBatchNormGradSums& op, Descs inputs, Descs) {
  expect_gradient(op, inputs[0], inputs[1]);
  expect_float_vectors(op, inputs.subspan(2, 3));
  const Rows shape = rows_of(inputs[0]);
  const auto body = [op, shape, dtype = inputs[0].dtype, x = row_elements(inputs[0]), dy = row_elements(inputs[1])](
                        const KernelArgs& args, cudaStream_t stream) {
    launch_sync_norm_grad_sums(stream, dtype,
                               {.shape = shape,
                                .epsilon = static_cast<float>(op.epsilon),
                                .relu = op.relu,
                                .x = rows_in(args, 0, x),
                                .dy = rows_in(args, 1, dy),
                                .mean = input<float>(args, 3),
                                .var = input<float>(args, 4),
                                .saved = input<float>(args, 5),
                                .dscale = output<float>(args, 0),
                                .dshift = output<float>(args, 1),
                                .own_sums = output<float>(args, 2),
                                .memory = sums_memory(args)});
  };
  return make_launch_kernel("norm", body, channel_sums_bytes(shape));
}

std::unique_ptr<Kernel> compile(const Context&, const SyncBatchNormGrad& op, Descs inputs, Descs outputs) {
  expect_gradient(op, inputs[0], inputs[1]);
  expect_float_vectors(op, inputs.subspan(2, 3));
  const Rows shape = rows_of(inputs[0]);
  const auto body = [op, shape, dtype = inputs[0].dtype, x = row_elements(inputs[0]), dy = row_elements(inputs[1]),
                     dx = row_elements(outputs[0])](const KernelArgs& args, cudaStream_t stream) {
    launch_sync_norm_grad(stream, dtype,
                          {.shape = shape,
                           .values = static_cast<double>(op.values),
                           .epsilon = static_cast<float>(op.epsilon),
                           .relu = op.relu,
                           .x = rows_in(args, 0, x),
                           .dy = rows_in(args, 1, dy),
                           .mean = input<float>(args, 3),
                           .var = input<float>(args, 4),
                           .saved = input<float>(args, 5),
                           .sums = input<float>(args, 6),
                           .dx = rows_out(args, 0, dx),
                           .coefficients = coefficients_in(args, 0)});
  };
  return make_launch_kernel("norm", body, static_cast<size_t>(2 * shape.channels) * sizeof(float));
}

}  // namespace lockstep::cuda
