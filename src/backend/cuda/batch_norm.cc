// Batch norm, over the samples of one rank and of all ranks.
#include "backend/cuda/batch_norm.h"

#include <limits>

#include "backend/cuda/context.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {

void expect_float_vectors(const Op& op, Descs vectors) {
  for (const TensorDesc& desc : vectors) {
    if (desc.dtype != DType::f32)
      fail(ExitCode::config, "{} of {} channel values", op_name(op), dtype_name(desc.dtype));
  }
}

void expect_gradient(const Op& op, const TensorDesc& x, const TensorDesc& dy) {
  expect_element(op, x.dtype);
  require(x.shape == dy.shape && x.dtype == dy.dtype && x.format == dy.format, "{} of {} and {}", op_name(op),
          x.to_string(), dy.to_string());
}

namespace {

// What a batch norm's kernels know before they run.
struct Norm {
  Rows shape;
  DType dtype = DType::f32;
  float epsilon = 0;
  bool relu = false;
  int64_t x = 0, dy = 0, out = 0;  // elements from a row to the next, of slices too: the output is y or dx
};

// Inputs: x, then vectors; the first output is y.
template <class Operation>
Norm forward_norm(const Operation& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  expect_float_vectors(op, inputs.subspan(1));
  return {.shape = rows_of(inputs[0]),
          .dtype = inputs[0].dtype,
          .epsilon = static_cast<float>(op.epsilon),
          .relu = op.relu,
          .x = row_elements(inputs[0]),
          .out = row_elements(outputs[0])};
}

// Inputs: x, dy, then vectors.
template <class Operation>
Norm backward_norm(const Operation& op, Descs inputs) {
  expect_gradient(op, inputs[0], inputs[1]);
  expect_float_vectors(op, inputs.subspan(2, 3));
  return {.shape = rows_of(inputs[0]),
          .dtype = inputs[0].dtype,
          .epsilon = static_cast<float>(op.epsilon),
          .relu = op.relu,
          .x = row_elements(inputs[0]),
          .dy = row_elements(inputs[1])};
}

NormForward forward_args(const Norm& norm, const KernelArgs& args) {
  return {.shape = norm.shape,
          .epsilon = norm.epsilon,
          .relu = norm.relu,
          .x = {input(args, 0), norm.x},
          .scale = input<float>(args, 1),
          .shift = input<float>(args, 2),
          .y = {output(args, 0), norm.out}};
}

NormStatistics statistics_of(const KernelArgs& args) {
  return {.mean = output<float>(args, 1), .var = output<float>(args, 2), .saved = output<float>(args, 3)};
}

NormBackward backward_args(const Norm& norm, const KernelArgs& args) {
  return {.shape = norm.shape,
          .epsilon = norm.epsilon,
          .relu = norm.relu,
          .x = {input(args, 0), norm.x},
          .dy = {input(args, 1), norm.dy},
          .mean = input<float>(args, 3),
          .var = input<float>(args, 4),
          .factor = input<float>(args, 5),
          .shift = input<float>(args, 5) + norm.shape.channels,
          .values = static_cast<double>(norm.shape.rows)};
}

// `scale`: the number of that input, behind which shift and running mean are.
template <class Operation>
NormVectors vectors_of(const Operation& op, const KernelArgs& args, size_t scale) {
  return {.samples = static_cast<float>(op.samples),
          .epsilon = static_cast<float>(op.epsilon),
          .scale = input<float>(args, scale),
          .shift = input<float>(args, scale + 1),
          .running_mean = input<float>(args, scale + 2),
          .mean = output<float>(args, 0),
          .var = output<float>(args, 1),
          .inverse = output<float>(args, 2),
          .factor = output<float>(args, 3),
          .slope = output(args, 4),
          .offset = output(args, 5),
          .first = output<float>(args, 6),
          .second = output<float>(args, 7)};
}

// Inputs: x, dy, shift, mean, var, factor.
NormBackward moments_backward_args(const Norm& norm, const KernelArgs& args) {
  NormBackward backward = backward_args(norm, args);
  backward.shift = input<float>(args, 2);
  return backward;
}

NormGradients gradients_of(const Norm& norm, const KernelArgs& args) {
  return {.dx = {output(args, 0), norm.out}, .dscale = output<float>(args, 1), .dshift = output<float>(args, 2)};
}

size_t coefficient_bytes(Rows shape) { return 2 * shape.channels * sizeof(float); }

// Behind the `sums` bytes of the workspace.
float* coefficients_in(const KernelArgs& args, size_t sums) {
  return reinterpret_cast<float*>(static_cast<char*>(args.workspace) + sums);
}

// Of a kernel whose sums take that many bytes.
NormScratch scratch_of(const KernelArgs& args, size_t sums) { return {sums_memory(args), coefficients_in(args, sums)}; }

}  // namespace

std::unique_ptr<Kernel> compile(const Context&, const BatchNorm& op, Descs inputs, Descs outputs) {
  const auto body = [norm = forward_norm(op, inputs, outputs)](const KernelArgs& args, cudaStream_t stream) {
    launch_norm(stream, norm.dtype, forward_args(norm, args), statistics_of(args), sums_memory(args));
  };
  return make_launch_kernel("norm", body, channel_sums_bytes(rows_of(inputs[0])));
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormGrad& op, Descs inputs, Descs outputs) {
  Norm norm = backward_norm(op, inputs);
  norm.out = row_elements(outputs[0]);
  const size_t sums = channel_sums_bytes(norm.shape);
  const auto body = [norm, sums](const KernelArgs& args, cudaStream_t stream) {
    launch_norm_grad(stream, norm.dtype, backward_args(norm, args), gradients_of(norm, args), scratch_of(args, sums));
  };
  return make_launch_kernel("norm", body, sums + coefficient_bytes(norm.shape));
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormOfSums& op, Descs inputs, Descs outputs) {
  expect_float_vectors(op, inputs);
  expect_element(op, op.to);
  const auto body = [op, channels = outputs[0].shape.elements()](const KernelArgs& args, cudaStream_t stream) {
    launch_norm_of_sums(stream, op.to,
                        {.channels = channels,
                         .values = static_cast<double>(op.values),
                         .sum = input<float>(args, 0) + op.begin,
                         .squares = input<float>(args, 1) + op.begin},
                        vectors_of(op, args, 2));
  };
  return make_launch_kernel("moments", body);
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormStatistics& op, Descs inputs, Descs) {
  expect_element(op, op.to);
  expect_float_vectors(op, inputs.subspan(1));
  require(op.to == inputs[0].dtype, "{} in {} of {}", op_name(op), dtype_name(op.to), inputs[0].to_string());
  const Rows shape = rows_of(inputs[0]);
  const auto body = [op, shape, x = row_elements(inputs[0])](const KernelArgs& args, cudaStream_t stream) {
    launch_norm_statistics(stream, op.to, shape, {input(args, 0), x}, vectors_of(op, args, 1), sums_memory(args));
  };
  return make_launch_kernel("norm", body, channel_sums_bytes(shape));
}

std::unique_ptr<Kernel> compile(const Context&, const AvgPoolStatistics& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  expect_float_vectors(op, inputs.subspan(1));
  const PoolLaunch pool{.window = op.window,
                        .image = inputs[0].shape,
                        .out = outputs[0].shape,
                        .count_include_pad = op.count_include_pad};
  const auto body = [op, pool, dtype = inputs[0].dtype, x = row_elements(inputs[0]), y = row_elements(outputs[0])](
                        const KernelArgs& args, cudaStream_t stream) {
    KernelArgs vectors = args;
    vectors.outputs = args.outputs.subspan(1);
    launch_avg_pool_statistics(stream, dtype, pool, {input(args, 0), x}, {output(args, 0), y},
                               vectors_of(op, vectors, 1), sums_memory(args));
  };
  return make_launch_kernel("pool", body, channel_sums_bytes(rows_of(outputs[0])));
}

bool can(const Context&, const AvgPoolStatistics&, Descs inputs, Descs) {
  return inputs[0].shape.elements() < int64_t{1} << 31;
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormOfSumsGrad& op, Descs inputs, Descs outputs) {
  Norm norm = backward_norm(op, inputs);
  norm.out = row_elements(outputs[0]);
  const size_t sums = channel_sums_bytes(norm.shape);
  const auto body = [norm, sums](const KernelArgs& args, cudaStream_t stream) {
    launch_norm_grad(stream, norm.dtype, moments_backward_args(norm, args), gradients_of(norm, args),
                     scratch_of(args, sums));
  };
  return make_launch_kernel("norm", body, sums + coefficient_bytes(norm.shape));
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormMaxPool& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  expect_float_vectors(op, inputs.subspan(1));
  const PoolLaunch pool{.window = op.window, .image = inputs[0].shape, .out = outputs[0].shape};
  const auto body = [pool, dtype = inputs[0].dtype, x = row_elements(inputs[0]), y = row_elements(outputs[0])](
                        const KernelArgs& args, cudaStream_t stream) {
    launch_norm_max_pool(stream, dtype, pool,
                         {.x = {input(args, 0), x},
                          .mean = input<float>(args, 2),
                          .factor = input<float>(args, 3),
                          .shift = input<float>(args, 1),
                          .y = {output(args, 0), y},
                          .saved = output<uint8_t>(args, 1)});
  };
  return make_launch_kernel("norm", body);
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormMaxPoolGrad& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  expect_float_vectors(op, inputs.subspan(2, 4));
  const Norm norm{.shape = rows_of(inputs[0]),
                  .dtype = inputs[0].dtype,
                  .epsilon = static_cast<float>(op.epsilon),
                  .relu = true,
                  .x = row_elements(inputs[0]),
                  .dy = row_elements(inputs[1]),
                  .out = row_elements(outputs[0])};
  const PoolLaunch pool{.window = op.window, .image = inputs[0].shape, .out = inputs[1].shape};
  const size_t sums = channel_sums_bytes(norm.shape);
  const auto body = [norm, pool, sums, y = op.pooled_sums ? row_elements(inputs[7]) : 0](const KernelArgs& args,
                                                                                         cudaStream_t stream) {
    const PooledImage pooled{input<uint8_t>(args, 6), {y > 0 ? input(args, 7) : nullptr, y}};
    launch_norm_max_pool_grad(stream, norm.dtype, pool, pooled, moments_backward_args(norm, args),
                              gradients_of(norm, args), scratch_of(args, sums));
  };
  return make_launch_kernel("norm", body, sums + coefficient_bytes(norm.shape));
}

bool can(const Context&, const BatchNormMaxPool& op, Descs inputs, Descs) {
  return inputs[0].shape.elements() < int64_t{1} << 31 && op.window.kernel_h * op.window.kernel_w <= kNoMaximum;
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormGradApply& op, Descs inputs, Descs outputs) {
  expect_gradient(op, inputs[1], inputs[0]);
  expect_float_vectors(op, inputs.subspan(2));
  const auto body = [shape = rows_of(inputs[0]), dtype = inputs[0].dtype, dz = row_elements(inputs[0]),
                     x = row_elements(inputs[1]),
                     dx = row_elements(outputs[0])](const KernelArgs& args, cudaStream_t stream) {
    launch_norm_grad_apply(stream, dtype,
                           {.shape = shape,
                            .dz = {input(args, 0), dz},
                            .x = {input(args, 1), x},
                            .by_dz = input<float>(args, 2),
                            .by_x = input<float>(args, 3),
                            .constant = input<float>(args, 4),
                            .dx = {output(args, 0), dx}});
  };
  return make_launch_kernel("norm", body);
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormInference& op, Descs inputs, Descs outputs) {
  const auto body = [norm = forward_norm(op, inputs, outputs)](const KernelArgs& args, cudaStream_t stream) {
    launch_norm_inference(stream, norm.dtype, forward_args(norm, args),
                          {.mean = input<float>(args, 3), .var = input<float>(args, 4)});
  };
  return make_launch_kernel("norm", body);
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormInferenceGrad& op, Descs inputs, Descs outputs) {
  Norm norm = backward_norm(op, inputs);
  expect_float_vectors(op, inputs.subspan(5));
  norm.out = row_elements(outputs[0]);
  const size_t sums = channel_sums_bytes(norm.shape);
  const auto body = [norm, sums](const KernelArgs& args, cudaStream_t stream) {
    NormBackward backward = backward_args(norm, args);
    backward.values = std::numeric_limits<double>::infinity();
    float* saved = coefficients_in(args, sums + coefficient_bytes(norm.shape));
    launch_running_slopes(stream, backward, input<float>(args, 2), input<float>(args, 5), saved);
    backward.factor = saved;
    backward.shift = saved + norm.shape.channels;
    launch_norm_grad(stream, norm.dtype, backward, gradients_of(norm, args), scratch_of(args, sums));
  };
  return make_launch_kernel("norm", body, sums + 2 * coefficient_bytes(norm.shape));
}

std::unique_ptr<Kernel> compile(const Context&, const BatchMoments& op, Descs inputs, Descs) {
  expect_float_vectors(op, inputs);
  const auto samples = static_cast<float>(op.samples);
  const auto body = [channels = inputs[0].shape.elements(), samples](const KernelArgs& args, cudaStream_t stream) {
    launch_moments(stream, {.channels = channels,
                            .samples = samples,
                            .mean = input<float>(args, 0),
                            .var = input<float>(args, 1),
                            .running_mean = input<float>(args, 2),
                            .first = output<float>(args, 0),
                            .second = output<float>(args, 1)});
  };
  return make_launch_kernel("moments", body);
}

std::unique_ptr<Kernel> compile(const Context&, const SyncBatchNormSums& op, Descs inputs, Descs) {
  expect_element(op, inputs[0].dtype);
  expect_float_vectors(op, inputs.subspan(1));
  const Rows shape = rows_of(inputs[0]);
  const auto body = [shape, dtype = inputs[0].dtype, x = row_elements(inputs[0])](const KernelArgs& args,
                                                                                  cudaStream_t stream) {
    launch_sync_norm_sums(stream, dtype, shape, {input(args, 0), x}, input<float>(args, 1), output<float>(args, 0),
                          sums_memory(args));
  };
  return make_launch_kernel("norm", body, channel_sums_bytes(shape));
}

std::unique_ptr<Kernel> compile(const Context&, const SyncBatchNorm& op, Descs inputs, Descs outputs) {
  const auto body = [norm = forward_norm(op, inputs, outputs), values = static_cast<double>(op.values)](
                        const KernelArgs& args, cudaStream_t stream) {
    launch_sync_norm(stream, norm.dtype, forward_args(norm, args),
                     {.values = values, .running_mean = input<float>(args, 3), .sums = input<float>(args, 4)},
                     statistics_of(args));
  };
  return make_launch_kernel("norm", body);
}

std::unique_ptr<Kernel> compile(const Context&, const SyncBatchNormGradSums& op, Descs inputs, Descs) {
  const auto body = [norm = backward_norm(op, inputs)](const KernelArgs& args, cudaStream_t stream) {
    launch_sync_norm_grad_sums(
        stream, norm.dtype, backward_args(norm, args),
        {.dscale = output<float>(args, 0), .dshift = output<float>(args, 1), .sums = output<float>(args, 2)},
        sums_memory(args));
  };
  return make_launch_kernel("norm", body, channel_sums_bytes(rows_of(inputs[0])));
}

std::unique_ptr<Kernel> compile(const Context&, const SyncBatchNormGrad& op, Descs inputs, Descs outputs) {
  Norm norm = backward_norm(op, inputs);
  norm.out = row_elements(outputs[0]);
  const auto body = [norm, values = static_cast<double>(op.values)](const KernelArgs& args, cudaStream_t stream) {
    launch_sync_norm_grad(stream, norm.dtype, backward_args(norm, args),
                          {.values = values,
                           .sums = input<float>(args, 6),
                           .dx = {output(args, 0), norm.out},
                           .coefficients = coefficients_in(args, 0)});
  };
  return make_launch_kernel("norm", body, coefficient_bytes(norm.shape));
}

}  // namespace lockstep::cuda
