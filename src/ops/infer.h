// Common functions of the overloads of infer_op, and the overloads of fused operations.
#pragma once

#include "lockstep/base/error.h"
#include "lockstep/ops/ops.h"

namespace lockstep {

using Descs = std::span<const TensorDesc>;
using Result = std::vector<TensorDesc>;

inline TensorDesc like(const TensorDesc& model, Shape shape) { return {shape, model.dtype, Format::plain()}; }
inline TensorDesc like(const TensorDesc& model) { return like(model, model.shape); }

inline void expect_inputs(Descs in, size_t count) {
  require(in.size() == count, "expects {} inputs, has {}", count, in.size());
}

inline void expect_shape(const TensorDesc& desc, const Shape& shape, std::string_view what) {
  if (!(desc.shape == shape)) {
    fail(ExitCode::config, "{} has shape {}, expected {}", what, desc.shape.to_string(), shape.to_string());
  }
}

inline int64_t window_output(int64_t size, int64_t kernel, int64_t stride, int64_t pad, char axis) {
  if (size + 2 * pad < kernel) {
    fail(ExitCode::config,
         "a window of {} does not fit into {} = {} (padding {}): the image is too small for the model", kernel, axis,
         size, pad);
  }
  return (size + 2 * pad - kernel) / stride + 1;
}

inline Shape pooled(const Window& w, const Shape& x, int64_t channels) {
  return {x.n(), channels, window_output(x.h(), w.kernel_h, w.stride_h, w.pad_h, 'H'),
          window_output(x.w(), w.kernel_w, w.stride_w, w.pad_w, 'W')};
}

Result infer_op(const Conv2dStatistics& op, Descs in);
Result infer_op(const Conv2dNormalizedGradWeights& op, Descs in);
Result infer_op(const Conv2dGradInputNorm& op, Descs in);
Result infer_op(const BatchNormGradApply& op, Descs in);
Result infer_op(const BatchNormOfSums& op, Descs in);
Result infer_op(const BatchNormStatistics& op, Descs in);
Result infer_op(const AvgPoolStatistics& op, Descs in);
Result infer_op(const BatchNormOfSumsGrad& op, Descs in);
Result infer_op(const BatchNormGradSums& op, Descs in);
Result infer_op(const BatchNormGradOfSums& op, Descs in);
Result infer_op(const BatchNormMaxPool& op, Descs in);
Result infer_op(const BatchNormMaxPoolGrad& op, Descs in);
Result infer_op(const BatchNormMaxPoolGradOfSums& op, Descs in);
Result infer_op(const MaxPoolGradNormSums& op, Descs in);

}  // namespace lockstep
