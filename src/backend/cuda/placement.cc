#include "backend/cuda/placement.h"

#include "backend/cuda/check.h"
#include "backend/cuda/context.h"
#include "backend/cuda/rows.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {

Conversion conversion_of(const TensorDesc& from, const TensorDesc& to) {
  const Shape& s = from.shape;
  const auto last = [](const TensorDesc& desc) { return desc.format != Format::plain(); };
  const auto pairs = [](const TensorDesc& desc) { return desc.format == paired(); };
  const auto padding = [&](const TensorDesc& desc) { return stored_shape(desc).c() / (pairs(desc) ? 2 : 1) - s.c(); };
  if (s.rank() < 4) return {.samples = 1, .channels = s.elements(), .pixels = 1, .from = from.dtype, .to = to.dtype};
  return {.samples = s.n(),
          .channels = s.c(),
          .pixels = s.h() * s.w(),
          .from = from.dtype,
          .to = to.dtype,
          .from_channels_last = last(from),
          .to_channels_last = last(to),
          .from_pairs = pairs(from),
          .to_pairs = pairs(to),
          .from_padding = padding(from),
          .to_padding = padding(to),
          .width = s.w()};
}

std::unique_ptr<Kernel> compile(const Context&, const Concat& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  const Rows out = rows_of(outputs[0]);
  std::vector<ChannelCopy> copies;
  int64_t begin = 0;
  for (const TensorDesc& desc : inputs) {
    const int64_t channels = rows_of(desc).channels;
    const bool view = desc.parent_channels > 0;  // it is part of the output's memory already
    copies.push_back({.rows = view ? 0 : out.rows,
                      .channels = channels,
                      .from_channels = channels,
                      .to_channels = out.channels,
                      .to_begin = begin,
                      .element_bytes = dtype_bytes(desc.dtype)});
    begin += channels;
  }
  return make_launch_kernel("copy", [copies](const KernelArgs& args, cudaStream_t stream) {
    for (size_t i = 0; i < copies.size(); ++i) {
      if (copies[i].rows > 0) launch_channel_copy(stream, copies[i], input(args, i), output(args, 0));
    }
  });
}

std::unique_ptr<Kernel> compile(const Context&, const Slice& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  if (outputs[0].parent_channels > 0) return make_launch_kernel("view", [](const KernelArgs&, cudaStream_t) {});
  const Rows in = rows_of(inputs[0]);
  const ChannelCopy copy{.rows = in.rows,
                         .channels = op.count,
                         .from_channels = in.channels,
                         .from_begin = op.begin,
                         .to_channels = op.count,
                         .element_bytes = dtype_bytes(inputs[0].dtype)};
  return make_launch_kernel("copy", [copy](const KernelArgs& args, cudaStream_t stream) {
    launch_channel_copy(stream, copy, input(args, 0), output(args, 0));
  });
}

std::unique_ptr<Kernel> compile(const Context&, const Reshape&, Descs inputs, Descs) {
  return make_launch_kernel("copy", [bytes = packed_bytes(inputs[0])](const KernelArgs& args, cudaStream_t stream) {
    if (input(args, 0) == output(args, 0)) return;
    check(cudaMemcpyAsync(output(args, 0), input(args, 0), bytes, cudaMemcpyDeviceToDevice, stream), "a reshape");
  });
}

std::unique_ptr<Kernel> compile(const Context&, const Reorder& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  return make_launch_kernel("convert",
                            [what = conversion_of(inputs[0], outputs[0])](const KernelArgs& args, cudaStream_t stream) {
                              launch_convert(stream, what, input(args, 0), output(args, 0));
                            });
}

std::unique_ptr<Kernel> compile(const Context&, const Cast& op, Descs inputs, Descs outputs) {
  expect_element(op, inputs[0].dtype);
  expect_element(op, op.to);
  require(inputs[0].dtype == DType::f32 || op.to == DType::f32, "a cast from {} to {}", dtype_name(inputs[0].dtype),
          dtype_name(op.to));
  return make_launch_kernel("convert",
                            [what = conversion_of(inputs[0], outputs[0])](const KernelArgs& args, cudaStream_t stream) {
                              launch_convert(stream, what, input(args, 0), output(args, 0));
                            });
}

std::unique_ptr<Kernel> compile(const Context&, const CastMany& op, Descs inputs, Descs outputs) {
  expect_element(op, op.to);
  // Shared by the runs, of which there is one at a time, so that none allocates.
  const auto conversions = std::make_shared<std::vector<ConversionOf>>();
  for (size_t i = 0; i < inputs.size(); ++i) {
    require(inputs[i].dtype == inputs[0].dtype && (inputs[i].dtype == DType::f32) != (op.to == DType::f32),
            "casts from {} to {}", dtype_name(inputs[i].dtype), dtype_name(op.to));
    conversions->push_back({.what = conversion_of(inputs[i], outputs[i])});
  }
  return make_launch_kernel("convert", [conversions](const KernelArgs& args, cudaStream_t stream) {
    for (size_t i = 0; i < conversions->size(); ++i) {
      (*conversions)[i].from = args.inputs[i];
      (*conversions)[i].to = args.outputs[i];
    }
    launch_convert_many(stream, *conversions);
  });
}

std::unique_ptr<Kernel> compile(const Context&, const SumOverRanks&, Descs inputs, Descs) {
  return make_launch_kernel("copy", [bytes = packed_bytes(inputs[0])](const KernelArgs& args, cudaStream_t stream) {
    if (input(args, 0) == output(args, 0)) return;
    check(cudaMemcpyAsync(output(args, 0), input(args, 0), bytes, cudaMemcpyDeviceToDevice, stream), "a copy of sums");
  });
}

}  // namespace lockstep::cuda
