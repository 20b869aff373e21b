// Shape inference, an overload for each operation or for several of one rule, and queries of their facts.
#include "ops/infer.h"

#include <optional>

#include "lockstep/ops/pixels.h"

namespace lockstep {
namespace {

TensorDesc saved_blob() { return {{0}, DType::u8, Format::plain()}; }

void expect_rank(const TensorDesc& desc, int rank, std::string_view what) {
  if (desc.shape.rank() != rank) {
    fail(ExitCode::config, "{} has shape {}, expected {} dimensions", what, desc.shape.to_string(), rank);
  }
}

Shape conv_weights(const Window& w, int64_t out, int64_t in, int64_t groups) {
  if (groups < 1 || in % groups != 0 || out % groups != 0) {
    fail(ExitCode::config, "{} groups do not divide {} input and {} output channels", groups, in, out);
  }
  return {out, in / groups, w.kernel_h, w.kernel_w};
}

Result infer_op(const Conv2d& op, Descs in) {
  expect_inputs(in, op.bias ? 3 : 2);
  expect_rank(in[0], 4, "input");
  expect_rank(in[1], 4, "weights");
  const int64_t out = in[1].shape[0];
  expect_shape(in[1], conv_weights(op.window, out, in[0].shape.c(), op.groups), "weights");
  if (op.bias) expect_shape(in[2], {out}, "bias");
  return {like(in[0], pooled(op.window, in[0].shape, out))};
}
Result infer_op(const Conv2dGradInput& op, Descs in) {
  expect_inputs(in, 2);
  expect_shape(in[1], conv_weights(op.window, in[0].shape.c(), op.input.c(), op.groups), "weights");
  expect_shape(in[0], pooled(op.window, op.input, in[1].shape[0]), "output gradient");
  return {like(in[0], op.input)};
}
Result infer_op(const Conv2dGradWeights& op, Descs in) {
  expect_inputs(in, 2);
  expect_shape(in[1], pooled(op.window, in[0].shape, in[1].shape.c()), "output gradient");
  Result out{like(in[0], conv_weights(op.window, in[1].shape.c(), in[0].shape.c(), op.groups))};
  if (op.bias) out.push_back(like(in[0], {in[1].shape.c()}));
  return out;
}
Result infer_op(const Linear& op, Descs in) {
  expect_inputs(in, op.bias ? 3 : 2);
  expect_rank(in[0], 2, "input");
  expect_shape(in[1], {in[1].shape[0], in[0].shape[1]}, "weights");
  if (op.bias) expect_shape(in[2], {in[1].shape[0]}, "bias");
  return {like(in[0], {in[0].shape[0], in[1].shape[0]})};
}
Result infer_op(const LinearGradInput&, Descs in) {
  expect_inputs(in, 2);
  expect_shape(in[0], {in[0].shape[0], in[1].shape[0]}, "output gradient");
  return {like(in[0], {in[0].shape[0], in[1].shape[1]})};
}
Result infer_op(const LinearGradWeights& op, Descs in) {
  expect_inputs(in, 2);
  expect_shape(in[1], {in[0].shape[0], in[1].shape[1]}, "output gradient");
  Result out{like(in[0], {in[1].shape[1], in[0].shape[1]})};
  if (op.bias) out.push_back(like(in[0], {in[1].shape[1]}));
  return out;
}
void expect_bags(const TensorDesc& ids, const TensorDesc& values, int64_t samples) {
  expect_rank(ids, 2, "ids");
  expect_shape(ids, {samples, ids.shape[1]}, "ids");
  expect_shape(values, ids.shape, "values");
}
Result infer_op(const EmbeddingBag&, Descs in) {
  expect_inputs(in, 4);
  expect_rank(in[0], 2, "table");
  expect_rank(in[1], 2, "ids");
  expect_bags(in[1], in[2], in[1].shape[0]);
  expect_shape(in[3], {in[0].shape[1]}, "bias");
  return {like(in[0], {in[1].shape[0], in[0].shape[1]})};
}
Result infer_op(const EmbeddingBagGrad& op, Descs in) {
  expect_inputs(in, 3);
  expect_rank(in[0], 2, "output gradient");
  expect_bags(in[1], in[2], in[0].shape[0]);
  return {like(in[0], {op.vocabulary, in[0].shape[1]}), like(in[0], {in[0].shape[1]})};
}
Result infer_op(const BatchNorm&, Descs in) {
  expect_inputs(in, 3);
  expect_rank(in[0], 4, "input");
  const Shape channels{in[0].shape.c()};
  expect_shape(in[1], channels, "scale");
  expect_shape(in[2], channels, "shift");
  if (in[0].shape.elements() == in[0].shape.c()) {
    fail(ExitCode::config,
         "one value per channel (input {}): batch statistics need more; raise train.batch_size or the image size",
         in[0].shape.to_string());
  }
  return {like(in[0]), like(in[1], channels), like(in[1], channels), saved_blob()};
}
Result infer_op(const BatchNormGrad&, Descs in) {
  expect_inputs(in, 6);
  expect_shape(in[1], in[0].shape, "output gradient");
  const Shape channels{in[0].shape.c()};
  for (size_t i : {2, 3, 4}) expect_shape(in[i], channels, "scale, mean or variance");
  return {like(in[0]), like(in[2], channels), like(in[2], channels)};
}
Result infer_op(const BatchNormInference&, Descs in) {
  expect_inputs(in, 5);
  const Shape channels{in[0].shape.c()};
  for (size_t i : {1, 2, 3, 4}) expect_shape(in[i], channels, "scale, shift, mean or variance");
  return {like(in[0])};
}
Result infer_op(const BatchNormInferenceGrad&, Descs in) {
  expect_inputs(in, 6);
  expect_shape(in[1], in[0].shape, "output gradient");
  const Shape channels{in[0].shape.c()};
  for (size_t i : {2, 3, 4, 5}) expect_shape(in[i], channels, "scale, mean, variance or shift");
  return {like(in[0]), like(in[2], channels), like(in[2], channels)};
}
Result infer_op(const BatchMoments& op, Descs in) {
  expect_inputs(in, 3);
  require(op.samples > 0, "batch moments of {} samples", op.samples);
  expect_shape(in[1], in[0].shape, "variance");
  expect_shape(in[2], in[0].shape, "running mean");
  return {like(in[0]), like(in[0])};
}
Result infer_op(const SyncBatchNormSums&, Descs in) {
  expect_inputs(in, 2);
  expect_rank(in[0], 4, "input");
  expect_shape(in[1], {in[0].shape.c()}, "running mean");
  return {like(in[1], {2 * in[0].shape.c()})};
}
Result infer_op(const SyncBatchNorm& op, Descs in) {
  expect_inputs(in, 5);
  const Shape channels{in[0].shape.c()};
  for (size_t i : {1, 2, 3}) expect_shape(in[i], channels, "scale, shift or running mean");
  expect_shape(in[4], {2 * in[0].shape.c()}, "sums");
  require(op.values > 1, "batch statistics of {} values", op.values);
  return {like(in[0]), like(in[1], channels), like(in[1], channels), saved_blob()};
}
Result infer_op(const SyncBatchNormGradSums&, Descs in) {
  expect_inputs(in, 6);
  expect_shape(in[1], in[0].shape, "output gradient");
  const int64_t channels = in[0].shape.c();
  for (size_t i : {2, 3, 4}) expect_shape(in[i], {channels}, "scale, mean or variance");
  return {like(in[2], {channels}), like(in[2], {channels}), like(in[2], {2 * channels})};
}
Result infer_op(const SyncBatchNormGrad&, Descs in) {
  expect_inputs(in, 7);
  expect_shape(in[1], in[0].shape, "output gradient");
  expect_shape(in[6], {2 * in[0].shape.c()}, "sums");
  return {like(in[0])};
}
Result infer_op(const OneOf<SumOverRanks, Relu, Reorder> auto&, Descs in) {
  expect_inputs(in, 1);
  return {like(in[0])};
}
Result infer_op(const OneOf<ReluGrad, LocalResponseNormGrad> auto&, Descs in) {
  expect_inputs(in, 2);
  expect_shape(in[1], in[0].shape, "output gradient");
  return {like(in[0])};
}
Result infer_op(const Add&, Descs in) {
  require(in.size() >= 2, "expects two inputs or more, has {}", in.size());
  for (const TensorDesc& d : in) expect_shape(d, in[0].shape, "summand");
  return {like(in[0])};
}
Result infer_op(const Dropout& op, Descs in) {
  expect_inputs(in, 2);
  require(op.rate >= 0 && op.rate < 1, "dropout rate {} is outside [0, 1)", op.rate);
  expect_shape(in[1], {4}, "step");
  return {like(in[0])};
}
Result infer_op(const MaxPool& op, Descs in) {
  expect_inputs(in, 1);
  return {like(in[0], pooled(op.window, in[0].shape, in[0].shape.c())), saved_blob()};
}
Result infer_op(const MaxPoolGrad& op, Descs in) {
  expect_inputs(in, 2);
  expect_shape(in[0], pooled(op.window, op.input, op.input.c()), "output gradient");
  return {like(in[0], op.input)};
}
Result infer_op(const MaxPoolGradSum& op, Descs in) {
  require(in.size() > 2, "expects 3 inputs or more, has {}", in.size());
  for (const TensorDesc& d : in.subspan(2)) expect_shape(d, op.input, "summand");
  return infer_op(MaxPoolGrad{op.window, op.input}, in.first(2));
}
Result infer_op(const AvgPool& op, Descs in) {
  expect_inputs(in, 1);
  return {like(in[0], pooled(op.window, in[0].shape, in[0].shape.c()))};
}
Result infer_op(const AvgPoolGrad& op, Descs in) {
  expect_inputs(in, 1);
  expect_shape(in[0], pooled(op.window, op.input, op.input.c()), "output gradient");
  return {like(in[0], op.input)};
}
Result infer_op(const LocalResponseNorm& op, Descs in) {
  expect_inputs(in, 1);
  require(op.size % 2 == 1, "an even window of {} channels", op.size);
  return {like(in[0])};
}
Result infer_op(const Concat&, Descs in) {
  require(!in.empty(), "concatenates nothing");
  int64_t channels = 0;
  for (const TensorDesc& d : in) {
    const Shape& s = d.shape;
    expect_shape(d, {in[0].shape.n(), s.c(), in[0].shape.h(), in[0].shape.w()}, "member");
    channels += s.c();
  }
  return {like(in[0], {in[0].shape.n(), channels, in[0].shape.h(), in[0].shape.w()})};
}
Result infer_op(const Slice& op, Descs in) {
  expect_inputs(in, 1);
  const Shape& s = in[0].shape;
  require(op.begin >= 0 && op.count > 0 && op.begin + op.count <= s.c(), "channels {}+{} of {}", op.begin, op.count,
          s.to_string());
  return {like(in[0], {s.n(), op.count, s.h(), s.w()})};
}
Result infer_op(const Reshape& op, Descs in) {
  expect_inputs(in, 1);
  require(op.shape.elements() == in[0].shape.elements(), "{} cannot become {}", in[0].shape.to_string(),
          op.shape.to_string());
  return {like(in[0], op.shape)};
}
Result infer_op(const Cast& op, Descs in) {
  expect_inputs(in, 1);
  return {{in[0].shape, op.to, Format::plain()}};
}
Result infer_op(const CastMany& op, Descs in) {
  require(!in.empty(), "casts nothing");
  Result out;
  for (const TensorDesc& d : in) out.push_back({d.shape, op.to, Format::plain()});
  return out;
}
Result infer_op(const PreparePixels& op, Descs in) {
  require(op.changes || !op.distort, "colors of which none were drawn");
  expect_inputs(in, op.changes ? 2 : 1);
  expect_rank(in[0], 4, "pixels");
  const Shape& s = in[0].shape;
  expect_shape(in[0], {s[0], s[1], s[2], 3}, "pixels");
  if (op.changes) expect_shape(in[1], {s[0], kImageChanges}, "changes");
  return {{{s[0], 3, s[1], s[2]}, op.to, Format::plain()}};
}
Result infer_op(const SoftmaxCrossEntropy&, Descs in) {
  expect_inputs(in, 3);
  expect_rank(in[0], 2, "logits");
  expect_shape(in[1], {in[0].shape[0]}, "labels");
  expect_shape(in[2], {in[0].shape[0]}, "weights");
  return {like(in[0]), like(in[0], {}), {{2}, DType::i32, Format::plain()}};
}
Result infer_op(const SoftmaxCrossEntropyGrad&, Descs in) {
  require(in.size() == 3 || in.size() == 4, "expects 3 or 4 inputs, has {}", in.size());
  if (in.size() == 4) expect_shape(in[3], {}, "loss scale");
  return {like(in[0])};
}

OpFacts facts_of(const Op& op) {
  return std::visit([]<class Operation>(const Operation&) { return Operation::facts; }, op);
}

}  // namespace

std::string_view op_name(const Op& op) { return facts_of(op).name; }

std::vector<TensorDesc> infer(const Op& op, std::span<const TensorDesc> inputs) {
  try {
    return std::visit([&](const auto& o) { return infer_op(o, inputs); }, op);
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("{}: {}", op_name(op), e.what()), e.where());
  }
}

int in_place_input(const Op& op) { return facts_of(op).in_place_input; }

int saved_output(const Op& op) { return facts_of(op).saved_output; }

bool converts(const Op& op) { return facts_of(op).converts; }

int lowered_inputs(const Op& op) { return facts_of(op).lowered_inputs; }

int64_t multiply_adds(const Op& op, std::span<const TensorDesc> inputs, std::span<const TensorDesc> outputs) {
  const std::optional<Product> product = facts_of(op).product;
  if (!product) return 0;
  const auto shape = [&](const Operand& operand) { return (operand.output ? outputs : inputs)[operand.index].shape; };
  const Shape weights = shape(product->weights);
  int64_t count = shape(product->y).elements();
  for (int i = 1; i < weights.rank(); ++i) count *= weights[i];  // the weights of one output channel
  return count;
}

}  // namespace lockstep
