// Gradients of batch norms by way of what they normalized (BatchNormGradSums).
#include "backend/cuda/batch_norm.h"
#include "backend/cuda/context.h"

namespace lockstep::cuda {

std::unique_ptr<Kernel> compile(const Context&, const BatchNormGradSums& op, Descs inputs, Descs) {
  expect_gradient(op, inputs[0], inputs[1]);
  expect_float_vectors(op, inputs.subspan(2));
  const auto body = [shape = rows_of(inputs[0]), dtype = inputs[0].dtype, y = row_elements(inputs[0]),
                     dy = row_elements(inputs[1])](const KernelArgs& args, cudaStream_t stream) {
    launch_norm_grad_sums(stream, dtype,
                          {.shape = shape,
                           .y = {input(args, 0), y},
                           .dy = {input(args, 1), dy},
                           .shift = input<float>(args, 2),
                           .dshift = output<float>(args, 0),
                           .by_y = output<float>(args, 1),
                           .constant = output<float>(args, 2)},
                          sums_memory(args));
  };
  return make_launch_kernel("norm", body, channel_sums_bytes(rows_of(inputs[0])));
}

std::unique_ptr<Kernel> compile(const Context&, const MaxPoolGradNormSums& op, Descs inputs, Descs outputs) {
  expect_gradient(op, inputs[2], outputs[0]);
  expect_float_vectors(op, inputs.subspan(3, 1));
  const PoolLaunch pool{.window = op.window, .image = op.input, .out = inputs[0].shape};
  const Rows shape = rows_of(outputs[0]);
  const auto body = [pool, shape, dtype = inputs[0].dtype, dy = row_elements(inputs[0]), dx = row_elements(outputs[0])](
                        const KernelArgs& args, cudaStream_t stream) {
    launch_max_pool_grad_norm_sums(stream, dtype, pool, {input(args, 0), dy}, input<uint8_t>(args, 1),
                                   {.shape = shape,
                                    .y = {input(args, 2), shape.channels},
                                    .shift = input<float>(args, 3),
                                    .dshift = output<float>(args, 1),
                                    .by_y = output<float>(args, 2),
                                    .constant = output<float>(args, 3)},
                                   args.inputs.subspan(4), {output(args, 0), dx}, sums_memory(args));
  };
  return make_launch_kernel("pool", body, channel_sums_bytes(shape));
}

bool can(const Context&, const MaxPoolGradNormSums& op, Descs inputs, Descs) {
  return inputs.size() <= 4 + kMaxSummands && op.input.elements() < int64_t{1} << 31;
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormGradOfSums& op, Descs inputs, Descs outputs) {
  expect_gradient(op, inputs[0], inputs[1]);
  expect_float_vectors(op, inputs.subspan(2));
  const auto body = [op, shape = rows_of(inputs[0]), dtype = inputs[0].dtype, x = row_elements(inputs[0]),
                     dy = row_elements(inputs[1]),
                     dx = row_elements(outputs[0])](const KernelArgs& args, cudaStream_t stream) {
    launch_norm_grad_of_sums(stream, dtype,
                             {.shape = shape,
                              .relu = op.relu,
                              .x = {input(args, 0), x},
                              .dy = {input(args, 1), dy},
                              .shift = input<float>(args, 2),
                              .mean = input<float>(args, 3),
                              .factor = input<float>(args, 4),
                              .by_y = input<float>(args, 5) + op.begin,
                              .constant = input<float>(args, 6) + op.begin,
                              .dx = {output(args, 0), dx}});
  };
  return make_launch_kernel("norm", body);
}

std::unique_ptr<Kernel> compile(const Context&, const BatchNormMaxPoolGradOfSums& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  expect_float_vectors(op, inputs.subspan(2, 3));
  const PoolLaunch pool{.window = op.window, .image = inputs[0].shape, .out = inputs[1].shape};
  const Rows shape = rows_of(inputs[0]);
  const auto share = static_cast<float>(rows_of(inputs[1]).rows) / static_cast<float>(shape.rows);
  const auto body = [pool, shape, share, dtype = inputs[0].dtype, x = row_elements(inputs[0]),
                     dy = row_elements(inputs[1]),
                     dx = row_elements(outputs[0])](const KernelArgs& args, cudaStream_t stream) {
    launch_norm_max_pool_grad_of_sums(stream, dtype, pool, input<uint8_t>(args, 5),
                                      {.shape = shape,
                                       .relu = true,
                                       .x = {input(args, 0), x},
                                       .dy = {input(args, 1), dy},
                                       .shift = input<float>(args, 2),
                                       .mean = input<float>(args, 3),
                                       .factor = input<float>(args, 4),
                                       .by_y = input<float>(args, 6),
                                       .constant = input<float>(args, 7),
                                       .share = share,
                                       .dx = {output(args, 0), dx}});
  };
  return make_launch_kernel("norm", body);
}

}  // namespace lockstep::cuda
