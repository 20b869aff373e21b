#include "backend/cuda/pointwise.h"

#include "backend/cuda/context.h"
#include "backend/cuda/placement.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {

std::unique_ptr<Kernel> compile(const Context&, const Relu& op, Descs inputs, Descs) {
  expect_alike(op, inputs);
  const auto body = [op, count = inputs[0].shape.elements(), dtype = inputs[0].dtype](const KernelArgs& args,
                                                                                      cudaStream_t stream) {
    launch_relu(stream, dtype, count, op.six, input(args, 0), output(args, 0));
  };
  return make_launch_kernel("pointwise", body);
}

std::unique_ptr<Kernel> compile(const Context&, const ReluGrad& op, Descs inputs, Descs) {
  expect_alike(op, inputs);
  const auto body = [op, count = inputs[0].shape.elements(), dtype = inputs[0].dtype](const KernelArgs& args,
                                                                                      cudaStream_t stream) {
    launch_relu_grad(stream, dtype, count, op.six, input(args, 0), input(args, 1), output(args, 0));
  };
  return make_launch_kernel("pointwise", body);
}

std::unique_ptr<Kernel> compile(const Context&, const Add& op, Descs inputs, Descs) {
  expect_alike(op, inputs);
  const auto body = [count = inputs[0].shape.elements(), dtype = inputs[0].dtype](const KernelArgs& args,
                                                                                  cudaStream_t stream) {
    // kMaxTerms at a time: the sum so far is the first term of the next addition.
    std::array<const void*, kMaxTerms> terms{};
    size_t gathered = 0;
    for (size_t i = 0; i < args.inputs.size(); ++i) {
      terms[gathered++] = args.inputs[i];
      if (gathered < kMaxTerms && i + 1 < args.inputs.size()) continue;
      launch_add(stream, dtype, count, std::span(terms).first(gathered), output(args, 0));
      terms[0] = output(args, 0);
      gathered = 1;
    }
  };
  return make_launch_kernel("pointwise", body);
}

std::unique_ptr<Kernel> compile(const Context&, const Dropout& op, Descs inputs, Descs) {
  expect_element(op, inputs[0].dtype);
  const Shape& s = inputs[0].shape;
  const DropoutLaunch what{.op = op, .samples = s.n(), .channels = s.c(), .pixels = s.h() * s.w()};
  return make_launch_kernel("dropout", [what, dtype = inputs[0].dtype](const KernelArgs& args, cudaStream_t stream) {
    launch_dropout(stream, dtype, what, input<int32_t>(args, 1), input(args, 0), output(args, 0));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const PreparePixels& op, Descs, Descs outputs) {
  expect_element(op, op.to);
  const Shape& s = outputs[0].shape;
  const Conversion to = conversion_of({s, DType::f32, Format::channels_last()}, outputs[0]);
  const PixelsLaunch what{.op = op,
                          .samples = s.n(),
                          .stored = s.c() + to.to_padding,
                          .pixels = static_cast<int>(s.h() * s.w()),
                          .width = static_cast<int>(s.w()),
                          .to_width = static_cast<int>(stored_width(to.to_pairs, s.w()))};
  require(what.stored == 3 || what.stored == 4 || what.stored == 8, "pixels of {} channels", what.stored);
  return make_launch_kernel("pixels", [what](const KernelArgs& args, cudaStream_t stream) {
    launch_prepare_pixels(stream, what, input<uint8_t>(args, 0),
                          what.op.changes ? input<ImageChanges>(args, 1) : nullptr, output(args, 0));
  });
}

}  // namespace lockstep::cuda
