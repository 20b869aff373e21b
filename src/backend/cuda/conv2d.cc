// Convolutions by cuDNN; the bias and its gradient by kernels of our own.
#include "backend/cuda/context.h"
#include "backend/cuda/pointwise.h"
#include "backend/cuda/rows.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

Rows rows_of(const Shape& image) { return {image.n() * image.h() * image.w(), image.c()}; }

struct ConvTensors {
  const TensorDesc &x, &weights, &y;  // or their gradients
};

ConvProblem problem_of(const Context& context, ConvKind kind, const Window& window, const ConvTensors& tensors) {
  for (const TensorDesc* desc : {&tensors.x, &tensors.weights, &tensors.y}) {
    require(desc->format == dense(desc->shape) || desc->format == padded(), "cuDNN is given {}", desc->to_string());
  }
  return {.kind = kind,
          .dtype = tensors.x.dtype,
          .tf32 = context.tf32 && tensors.x.dtype == DType::f32,
          .window = window,
          .x = stored_shape(tensors.x),
          .weights = stored_shape(tensors.weights),
          .y = stored_shape(tensors.y)};
}

std::string implementation_of(const ConvPlan& plan) {
  return "cudnn:" + plan.name() + (plan.tensor_cores() ? ", tensor cores" : "");
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context& context, const Conv2d& op, Descs inputs, Descs outputs) {
  const ConvTensors tensors{.x = inputs[0], .weights = inputs[1], .y = outputs[0]};
  const auto plan = context.planner.plan(problem_of(context, ConvKind::forward, op.window, tensors));
  const auto body = [plan, op, dtype = inputs[0].dtype, rows = rows_of(outputs[0].shape)](const KernelArgs& args,
                                                                                          cudaStream_t stream) {
    const std::array<void*, 3> memory{args.inputs[0], args.inputs[1], args.outputs[0]};
    plan->run(stream_of(args).cudnn(), memory, args.workspace);
    if (op.bias) launch_add_bias(stream, dtype, rows, args.inputs[2], args.outputs[0]);
  };
  return make_launch_kernel(implementation_of(*plan), body, plan->workspace_bytes());
}

std::unique_ptr<Kernel> compile(const Context& context, const Conv2dGradInput& op, Descs inputs, Descs outputs) {
  const ConvTensors tensors{.x = outputs[0], .weights = inputs[1], .y = inputs[0]};
  const auto plan = context.planner.plan(problem_of(context, ConvKind::grad_input, op.window, tensors));
  const auto body = [plan](const KernelArgs& args, cudaStream_t) {
    const std::array<void*, 3> memory{args.outputs[0], args.inputs[1], args.inputs[0]};
    plan->run(stream_of(args).cudnn(), memory, args.workspace);
  };
  return make_launch_kernel(implementation_of(*plan), body, plan->workspace_bytes());
}

std::unique_ptr<Kernel> compile(const Context& context, const Conv2dGradWeights& op, Descs inputs, Descs outputs) {
  const ConvTensors tensors{.x = inputs[0], .weights = outputs[0], .y = inputs[1]};
  const auto plan = context.planner.plan(problem_of(context, ConvKind::grad_weights, op.window, tensors));
  const Rows rows = rows_of(inputs[1].shape);
  const auto body = [plan, op, rows, dtype = inputs[1].dtype](const KernelArgs& args, cudaStream_t stream) {
    const std::array<void*, 3> memory{args.inputs[0], args.outputs[0], args.inputs[1]};
    plan->run(stream_of(args).cudnn(), memory, args.workspace);
    if (op.bias) launch_channel_sums(stream, dtype, rows, args.inputs[1], args.outputs[1], sums_memory(args));
  };
  const size_t sums = op.bias ? channel_sums_bytes(rows) : 0;
  return make_launch_kernel(implementation_of(*plan), body, std::max(plan->workspace_bytes(), sums));
}

}  // namespace lockstep::cuda
