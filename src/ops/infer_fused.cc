// Shape inference of operations that fuse layers.
#include "ops/infer.h"

namespace lockstep {
namespace {

// Returns the type of sums over values of this type.
DType sums_dtype(DType of) { return of == DType::f64 ? DType::f64 : DType::f32; }

void expect_vectors(Descs in, size_t first, int64_t channels) {
  for (size_t i = first; i < in.size(); ++i) expect_shape(in[i], {channels}, fmt::format("input {}", i));
}

}  // namespace

Result infer_op(const Conv2dStatistics& op, Descs in) {
  expect_inputs(in, op.normalized ? 4 : 2);
  Result out = infer(Conv2d{op.window}, in.first(2));
  expect_vectors(in, 2, in[0].shape.c());
  out.resize(3, {{in[1].shape[0]}, sums_dtype(in[0].dtype), Format::plain()});
  return out;
}
Result infer_op(const Conv2dNormalizedGradWeights& op, Descs in) {
  expect_inputs(in, 4);
  expect_vectors(in, 2, in[0].shape.c());
  return infer(Conv2dGradWeights{op.window}, in.first(2));
}
Result infer_op(const Conv2dGradInputNorm& op, Descs in) {
  expect_inputs(in, 7);
  Result out = infer(Conv2dGradInput{op.window, op.input}, in.first(2));
  expect_shape(in[2], op.input, "image");
  expect_vectors(in, 3, op.input.c());
  out.resize(6, like(in[3]));
  return out;
}
Result infer_op(const BatchNormGradApply&, Descs in) {
  expect_inputs(in, 5);
  expect_shape(in[1], in[0].shape, "image");
  expect_vectors(in, 2, in[0].shape.c());
  return {like(in[0])};
}
Result infer_op(const BatchNormOfSums& op, Descs in) {
  expect_inputs(in, 5);
  require(op.values > 1 && op.samples > 0, "batch statistics of {} values of {} samples", op.values, op.samples);
  expect_shape(in[1], in[0].shape, "sum of squares");
  const int64_t channels = in[2].shape.elements();
  require(op.begin >= 0 && op.begin + channels <= in[0].shape.elements(), "channels {}+{} of {}", op.begin, channels,
          in[0].shape.to_string());
  expect_vectors(in, 2, channels);
  Result out(8, like(in[2]));
  out[4].dtype = out[5].dtype = op.to;
  return out;
}
Result infer_op(const BatchNormStatistics& op, Descs in) {
  expect_inputs(in, 4);
  expect_vectors(in, 1, in[0].shape.c());
  require(op.samples > 0, "batch statistics of {} samples", op.samples);
  Result out(8, like(in[1]));
  out[4].dtype = out[5].dtype = op.to;
  return out;
}
Result infer_op(const AvgPoolStatistics& op, Descs in) {
  Result out = infer(AvgPool{op.window, op.count_include_pad}, in.first(1));
  const Result vectors = infer_op(BatchNormStatistics{op.epsilon, op.samples, op.to}, in);
  out.insert(out.end(), vectors.begin(), vectors.end());
  return out;
}
Result infer_op(const BatchNormOfSumsGrad&, Descs in) {
  expect_inputs(in, 6);
  expect_shape(in[1], in[0].shape, "output gradient");
  expect_vectors(in, 2, in[0].shape.c());
  return {like(in[0]), like(in[2]), like(in[2])};
}
Result infer_op(const BatchNormGradSums&, Descs in) {
  expect_inputs(in, 3);
  expect_shape(in[1], in[0].shape, "output gradient");
  expect_vectors(in, 2, in[0].shape.c());
  return Result(3, like(in[2]));
}
Result infer_op(const BatchNormGradOfSums& op, Descs in) {
  expect_inputs(in, 7);
  expect_shape(in[1], in[0].shape, "output gradient");
  expect_vectors(in.first(5), 2, in[0].shape.c());
  expect_shape(in[6], in[5].shape, "constant");
  require(op.begin >= 0 && op.begin + in[0].shape.c() <= in[5].shape.elements(), "channels {}+{} of {}", op.begin,
          in[0].shape.c(), in[5].shape.to_string());
  return {like(in[0])};
}
Result infer_op(const BatchNormMaxPool& op, Descs in) {
  expect_inputs(in, 4);
  expect_vectors(in, 1, in[0].shape.c());
  return infer(MaxPool{op.window}, in.first(1));
}
Result infer_op(const BatchNormMaxPoolGrad& op, Descs in) {
  expect_inputs(in, op.pooled_sums ? 8 : 7);
  if (op.pooled_sums) expect_shape(in[7], in[1].shape, "pooled image");
  expect_shape(in[1], pooled(op.window, in[0].shape, in[0].shape.c()), "output gradient");
  expect_vectors(in.first(6), 2, in[0].shape.c());
  return {like(in[0]), like(in[2]), like(in[2])};
}
Result infer_op(const BatchNormMaxPoolGradOfSums& op, Descs in) {
  expect_inputs(in, 8);
  expect_shape(in[1], pooled(op.window, in[0].shape, in[0].shape.c()), "output gradient");
  expect_vectors(in.first(5), 2, in[0].shape.c());
  expect_vectors(in, 6, in[0].shape.c());
  return {like(in[0])};
}
Result infer_op(const MaxPoolGradNormSums& op, Descs in) {
  require(in.size() > 4, "expects 5 inputs or more, has {}", in.size());
  for (const TensorDesc& d : in.subspan(4)) expect_shape(d, op.input, "summand");
  Result out = infer(MaxPoolGrad{op.window, op.input}, in.first(2));
  const TensorDesc sums[] = {in[2], out[0], in[3]};
  const Result vectors = infer_op(BatchNormGradSums{}, sums);
  out.insert(out.end(), vectors.begin(), vectors.end());
  return out;
}

}  // namespace lockstep
