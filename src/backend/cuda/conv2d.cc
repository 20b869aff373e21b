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

ConvProblem problem_of(const Context& context, ConvKind kind, const Window& window, const ConvTensors& tensors,
                       Fusion fusion = Fusion::none) {
  for (const TensorDesc* desc : {&tensors.x, &tensors.weights, &tensors.y}) {
    require(desc->format == dense(desc->shape) || desc->format.kind == Format::Kind::opaque, "cuDNN is given {}",
            desc->to_string());
  }
  return {.kind = kind,
          .dtype = tensors.x.dtype,
          .tf32 = context.tf32 && tensors.x.dtype == DType::f32,
          .window = stored_window(window, tensors.x),
          .x = stored_shape(tensors.x),
          .weights = stored_shape(tensors.weights),
          .y = stored_shape(tensors.y),
          .fusion = fusion};
}

ConvProblem problem_of(const Context& context, const Conv2dStatistics& op, Descs inputs, Descs outputs) {
  return problem_of(context, ConvKind::forward, op.window, {.x = inputs[0], .weights = inputs[1], .y = outputs[0]},
                    op.normalized ? Fusion::normalized_statistics : Fusion::statistics);
}
ConvProblem problem_of(const Context& context, const Conv2dNormalizedGradWeights& op, Descs inputs, Descs outputs) {
  return problem_of(context, ConvKind::grad_weights, op.window, {.x = inputs[0], .weights = outputs[0], .y = inputs[1]},
                    Fusion::normalized_grad_weights);
}
ConvProblem problem_of(const Context& context, const Conv2dGradInputNorm& op, Descs inputs, Descs outputs) {
  return problem_of(context, ConvKind::grad_input, op.window, {.x = outputs[0], .weights = inputs[1], .y = inputs[0]},
                    Fusion::norm_gradients);
}

// The notes of fused engines do not say whether they use tensor cores.
std::string implementation_of(const ConvPlan& plan, Fusion fusion = Fusion::none) {
  if (fusion != Fusion::none) return "cudnn:" + plan.name() + ", fused";
  return "cudnn:" + plan.name() + (plan.tensor_cores() ? ", tensor cores" : "");
}

// A kernel that is one plan. `tensors`: the numbers of the inputs, then of the outputs.
std::unique_ptr<Kernel> plan_kernel(const Context& context, const ConvProblem& problem, std::vector<TensorId> tensors) {
  const auto plan = context.planner.plan(problem);
  const auto body = [plan, tensors = std::move(tensors)](const KernelArgs& args, cudaStream_t) {
    std::array<PlanTensor, kAfterLast> memory;
    const size_t inputs = args.inputs.size();
    for (size_t i = 0; i < tensors.size(); ++i) {
      memory[i] = {tensors[i], i < inputs ? args.inputs[i] : args.outputs[i - inputs]};
    }
    plan->run(stream_of(args).cudnn(), std::span(memory).first(tensors.size()), args.workspace);
  };
  return make_launch_kernel(implementation_of(*plan, problem.fusion), body, plan->workspace_bytes());
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context& context, const Conv2d& op, Descs inputs, Descs outputs) {
  const ConvTensors tensors{.x = inputs[0], .weights = inputs[1], .y = outputs[0]};
  const auto plan = context.planner.plan(problem_of(context, ConvKind::forward, op.window, tensors));
  const auto body = [plan, op, dtype = inputs[0].dtype, rows = rows_of(outputs[0].shape)](const KernelArgs& args,
                                                                                          cudaStream_t stream) {
    const PlanTensor memory[] = {{kX, args.inputs[0]}, {kWeights, args.inputs[1]}, {kY, args.outputs[0]}};
    plan->run(stream_of(args).cudnn(), memory, args.workspace);
    if (op.bias) launch_add_bias(stream, dtype, rows, args.inputs[2], args.outputs[0]);
  };
  return make_launch_kernel(implementation_of(*plan), body, plan->workspace_bytes());
}

std::unique_ptr<Kernel> compile(const Context& context, const Conv2dGradInput& op, Descs inputs, Descs outputs) {
  const ConvTensors tensors{.x = outputs[0], .weights = inputs[1], .y = inputs[0]};
  return plan_kernel(context, problem_of(context, ConvKind::grad_input, op.window, tensors), {kY, kWeights, kX});
}

std::unique_ptr<Kernel> compile(const Context& context, const Conv2dGradWeights& op, Descs inputs, Descs outputs) {
  const ConvTensors tensors{.x = inputs[0], .weights = outputs[0], .y = inputs[1]};
  const auto plan = context.planner.plan(problem_of(context, ConvKind::grad_weights, op.window, tensors));
  const Rows rows = rows_of(inputs[1].shape);
  const auto body = [plan, op, rows, dtype = inputs[1].dtype](const KernelArgs& args, cudaStream_t stream) {
    const PlanTensor memory[] = {{kX, args.inputs[0]}, {kWeights, args.outputs[0]}, {kY, args.inputs[1]}};
    plan->run(stream_of(args).cudnn(), memory, args.workspace);
    if (op.bias) launch_channel_sums(stream, dtype, rows, args.inputs[1], args.outputs[1], sums_memory(args));
  };
  const size_t sums = op.bias ? channel_sums_bytes(rows) : 0;
  return make_launch_kernel(implementation_of(*plan), body, std::max(plan->workspace_bytes(), sums));
}

std::unique_ptr<Kernel> compile(const Context& context, const Conv2dStatistics& op, Descs inputs, Descs outputs) {
  std::vector<TensorId> tensors{kX, kWeights};
  if (op.normalized) tensors.insert(tensors.end(), {kSlope, kOffset});
  tensors.insert(tensors.end(), {kY, kSum, kSquares});
  return plan_kernel(context, problem_of(context, op, inputs, outputs), std::move(tensors));
}

std::unique_ptr<Kernel> compile(const Context& context, const Conv2dNormalizedGradWeights& op, Descs inputs,
                                Descs outputs) {
  return plan_kernel(context, problem_of(context, op, inputs, outputs), {kX, kY, kSlope, kOffset, kWeights});
}

std::unique_ptr<Kernel> compile(const Context& context, const Conv2dGradInputNorm& op, Descs inputs, Descs outputs) {
  return plan_kernel(context, problem_of(context, op, inputs, outputs),
                     {kY, kWeights, kX, kScale, kShift, kMean, kInverseDeviation, kGradient, kScaleGradient,
                      kShiftGradient, kByGradient, kByX, kConstant});
}

// Vectors have no padding, so an image that is padded has none of them.
bool can(const Context& context, const Conv2dStatistics& op, Descs inputs, Descs outputs) {
  return (!op.normalized || inputs[0].format == dense(inputs[0].shape)) &&
         context.planner.can(problem_of(context, op, inputs, outputs));
}
bool can(const Context& context, const Conv2dNormalizedGradWeights& op, Descs inputs, Descs outputs) {
  return inputs[0].format == dense(inputs[0].shape) && context.planner.can(problem_of(context, op, inputs, outputs));
}
bool can(const Context& context, const Conv2dGradInputNorm& op, Descs inputs, Descs outputs) {
  return context.planner.can(problem_of(context, op, inputs, outputs));
}

}  // namespace lockstep::cuda
