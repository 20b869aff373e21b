#include "backend/cuda/context.h"

#include <algorithm>

#include "backend/cuda/check.h"
#include "backend/cuda/rows.h"
#include "lockstep/base/error.h"

namespace lockstep::cuda {

Format dense(const Shape& shape) {
  return shape.rank() == 4 && shape.h() * shape.w() > 1 ? Format::channels_last() : Format::plain();
}

namespace {

int64_t padded_channels(int64_t channels) { return channels <= 4 ? 4 : std::max<int64_t>(channels, 8); }

}  // namespace

Format for_convolution(const TensorDesc& desc) {
  const Shape& s = desc.shape;
  const bool pads = s.rank() == 4 && desc.dtype != DType::f32 && padded_channels(s.c()) > s.c();
  return pads ? padded() : dense(s);
}

// An odd kernel has a zero tap at its end, which sees the pixel behind its last one, if there is one. Other padding
// than that of whole pairs would differ by side, which fused engines refuse.
bool pairs_pixels(const Window& window, const TensorDesc& image) {
  return image.dtype != DType::f32 && image.shape.c() <= 4 && window.stride_w == 2 && window.kernel_w > 1 &&
         window.kernel_w % 2 == 1 && window.pad_w % 2 == 0;
}

Shape stored_shape(const TensorDesc& desc) {
  const Shape& s = desc.shape;
  if (desc.format == paired()) return {s.n(), 8, s.h(), (s.w() + 1) / 2};
  return desc.format == padded() ? Shape{s.n(), padded_channels(s.c()), s.h(), s.w()} : s;
}

Window stored_window(const Window& window, const TensorDesc& image) {
  if (image.format != paired()) return window;
  return {window.kernel_h, (window.kernel_w + 1) / 2, window.stride_h, 1, window.pad_h, window.pad_w / 2};
}

void expect_element(const Op& op, DType dtype) {
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16) {
    fail(ExitCode::config, "the CUDA backend has no {} of {}", op_name(op), dtype_name(dtype));
  }
}

void check_launch(std::string_view implementation) { check(cudaGetLastError(), implementation); }

Rows rows_of(const TensorDesc& desc) {
  const Shape& s = desc.shape;
  require(s.rank() != 4 || desc.format == dense(s), "{} is not channels last", desc.to_string());
  return {s.n() * s.h() * s.w(), s.c()};
}

int64_t row_elements(const TensorDesc& desc) {
  return desc.parent_channels > 0 ? desc.parent_channels : desc.shape.c();
}

SumsMemory sums_memory(const KernelArgs& args) { return {args.workspace, stream_of(args).tickets()}; }

void expect_alike(const Op& op, Descs tensors) {
  expect_element(op, tensors[0].dtype);
  for (const TensorDesc& desc : tensors) {
    require(desc == tensors[0], "{} of {} and {}", op_name(op), tensors[0].to_string(), desc.to_string());
  }
}

// BatchNorm: slope and shift of each channel, from which backward computes the ReLU's mask again. MaxPool: for each
// output the position of its maximum in the window.
size_t saved_bytes(const Op& op, Descs inputs) {
  return std::visit(Overload{[&](const BatchNorm&) { return 2 * inputs[0].shape.c() * sizeof(float); },
                             [&](const SyncBatchNorm&) { return 2 * inputs[0].shape.c() * sizeof(float); },
                             [&](const OneOf<MaxPool, BatchNormMaxPool> auto&) {
                               return infer(op, inputs)[0].shape.elements() * sizeof(uint8_t);
                             },
                             [](const SavesNothing auto&) { return size_t{0}; }},
                    op);
}

}  // namespace lockstep::cuda
