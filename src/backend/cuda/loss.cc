#include "backend/cuda/loss.h"

#include "backend/cuda/context.h"
#include "backend/cuda/rows.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

LossShape loss_shape(const Shape& logits, double label_smoothing) {
  return {logits[0], logits[1], static_cast<float>(label_smoothing)};
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context&, const SoftmaxCrossEntropy& op, Descs inputs, Descs) {
  require(inputs[0].dtype == DType::f32, "the loss of {}", inputs[0].to_string());
  const LossShape shape = loss_shape(inputs[0].shape, op.label_smoothing);
  const auto body = [shape](const KernelArgs& args, cudaStream_t stream) {
    launch_loss(stream, shape,
                {.logits = input<float>(args, 0),
                 .labels = input<int32_t>(args, 1),
                 .weights = input<float>(args, 2),
                 .probabilities = output<float>(args, 0),
                 .loss = output<float>(args, 1),
                 .correct = output<int32_t>(args, 2),
                 .workspace = args.workspace,
                 .tickets = sums_memory(args).tickets});
  };
  return make_launch_kernel("loss", body, loss_workspace_bytes(shape.samples));
}

std::unique_ptr<Kernel> compile(const Context&, const SoftmaxCrossEntropyGrad& op, Descs inputs, Descs) {
  require(inputs[0].dtype == DType::f32, "the loss of {}", inputs[0].to_string());
  const auto body = [op, shape = loss_shape(inputs[0].shape, op.label_smoothing)](const KernelArgs& args,
                                                                                  cudaStream_t stream) {
    launch_loss_grad(stream, shape,
                     {.probabilities = input<float>(args, 0),
                      .labels = input<int32_t>(args, 1),
                      .weights = input<float>(args, 2),
                      .loss_scale = args.inputs.size() > 3 ? input<float>(args, 3) : nullptr,
                      .scale = static_cast<float>(op.scale),
                      .dlogits = output<float>(args, 0)});
  };
  return make_launch_kernel("loss", body);
}

}  // namespace lockstep::cuda
