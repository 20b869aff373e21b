// Translates each operation of ONNX. Their definitions are at https://onnx.ai/onnx/operators.
#include <fmt/ranges.h>
#include <algorithm>
#include <limits>

#include "exchange/onnx_importer.h"

namespace lockstep {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::min();  // an extent that depends on the images

// Writes a key whose value is a number or [height, width].
std::string pair_key(std::string_view key, int64_t h, int64_t w, int64_t otherwise) {
  if (h != w) return fmt::format(", {} = [{}, {}]", key, h, w);
  return h == otherwise ? std::string() : fmt::format(", {} = {}", key, h);
}

// Whether the axes are height and width of [N,C,H,W].
bool are_spatial(std::vector<int64_t> axes) {
  for (int64_t& axis : axes) axis += axis < 0 ? 4 : 0;
  std::ranges::sort(axes);
  return axes == std::vector<int64_t>{2, 3};
}

}  // namespace

std::span<const OnnxImporter::Operator> OnnxImporter::operators() {
  using I = OnnxImporter;
  static constexpr Operator kOperators[] = {
      {"Add", "", &I::add_or_bias},
      {"AveragePool", "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides", &I::average_pool},
      {"BatchNormalization", "epsilon momentum training_mode", &I::batch_normalization},
      {"Clip", "", &I::clip},
      {"Concat", "axis", &I::concat},
      {"Constant", "value value_int value_ints", &I::constant_node},
      {"Conv", "auto_pad dilations group kernel_shape pads strides", &I::conv},
      {"Dropout", "seed", &I::dropout},
      {"Flatten", "axis", &I::flatten},
      {"Gather", "axis", &I::gather},
      {"Gemm", "alpha beta transA transB", &I::gemm},
      {"GlobalAveragePool", "", &I::global_average_pool},
      {"Identity", "", &I::identity},
      {"LRN", "alpha beta bias size", &I::lrn},
      {"LogSoftmax", "axis", &I::softmax},
      {"MatMul", "", &I::mat_mul},
      {"MaxPool", "auto_pad ceil_mode dilations kernel_shape pads storage_order strides", &I::max_pool},
      {"Pad", "mode", &I::pad},
      {"ReduceMean", "axes keepdims noop_with_empty_axes", &I::reduce_mean},
      {"Relu", "", &I::relu},
      {"Reshape", "allowzero", &I::reshape},
      {"Shape", "start end", &I::shape_of},
      {"Softmax", "axis", &I::softmax},
      {"Squeeze", "", &I::squeeze},
      {"Sum", "", &I::add_or_bias},
      {"Transpose", "perm", &I::transpose},
      {"Unsqueeze", "", &I::unsqueeze},
  };
  return kOperators;
}

// ---- windows

std::string OnnxImporter::window(const OnnxNode& node, const Value& x, const Integers& kernel) const {
  const auto list = [&](std::string_view name, const Integers& otherwise) {
    const OnnxAttribute* attribute = find(node, name);
    const Integers values = attribute ? attribute->integers : otherwise;
    if (values.size() != otherwise.size())
      refuse(node, "{} = [{}]: a window has two dimensions", name, fmt::join(values, ","));
    return values;
  };
  const OnnxAttribute* automatic = find(node, "auto_pad");
  if (automatic && automatic->text != "NOTSET" && automatic->text != "VALID") {
    refuse(node, "auto_pad = {}: pads of the same size on both sides are wanted", printable(automatic->text));
  }
  const Integers k = list("kernel_shape", kernel), strides = list("strides", {1, 1}), pads = list("pads", {0, 0, 0, 0});
  if (list("dilations", {1, 1}) != Integers{1, 1}) refuse(node, "a layer for windows with dilation would be needed");
  if (pads[0] != pads[2] || pads[1] != pads[3]) {
    refuse(node, "pads = [{}]: pads of the same size on both sides are wanted", fmt::join(pads, ","));
  }
  const bool padded = x.pad_h > 0 || x.pad_w > 0;
  if (padded && (pads[0] != 0 || pads[1] != 0)) refuse(node, "its input is padded already");
  return fmt::format("{}{}{}{}", pair_key("kernel", k[0], k[1], 0), pair_key("stride", strides[0], strides[1], 1),
                     pair_key("pad", padded ? x.pad_h : pads[0], padded ? x.pad_w : pads[1], 0),
                     integer(node, "ceil_mode", 0) != 0 ? ", ceil_mode = true" : "");
}

void OnnxImporter::conv(const OnnxNode& node) {
  const Value& x = input(node, 0);
  if (!x.pad_h && !x.pad_w) computed(node, 0, 4);
  const int64_t groups = integer(node, "group", 1);
  const Integers& w = weight_shape(node, 1, 4);
  const std::string name = names_.layer(node, node.inputs[1]);
  const bool bias = has_input(node, 2);
  Value y = add("conv", name, {x},
                fmt::format("{}{}{}, channels = {}", window(node, x, {w[2], w[3]}), bias ? ", bias = true" : "",
                            groups == 1 ? "" : fmt::format(", groups = {}", groups), w[0]));
  take(node, 1, name + ".weight", {w[0], w[1], w[2], w[3]});
  if (bias) take(node, 2, name + ".bias", {w[0]});
  y.head = y.layer;
  y.pooled = false;
  y.pad_h = y.pad_w = 0;
  set(node, y);
}

void OnnxImporter::max_pool(const OnnxNode& node) {
  require_integer(node, "storage_order", 0);
  const Value& x = computed(node, 0, 4);
  if (!find(node, "kernel_shape")) refuse(node, "it has no kernel_shape");
  Value y = add("max_pool", names_.layer(node), {x}, window(node, x, {1, 1}));
  y.pooled = false;
  set(node, y);
}

void OnnxImporter::average_pool(const OnnxNode& node) {
  const Value& x = input(node, 0);
  const bool padded = x.pad_h > 0 || x.pad_w > 0;
  if (!padded) computed(node, 0, 4);
  if (!find(node, "kernel_shape")) refuse(node, "it has no kernel_shape");
  const std::string keys = window(node, x, {1, 1});
  const bool all = padded || integer(node, "count_include_pad", 0) != 0 || keys.find("pad") == std::string::npos;
  Value y = add("avg_pool", names_.layer(node), {x}, keys + (all ? "" : ", count_include_pad = false"));
  y.pad_h = y.pad_w = 0;
  y.pooled = false;
  set(node, y);
}

// Records zeros, which the next node uses as its own padding.
void OnnxImporter::pad(const OnnxNode& node) {
  Value x = computed(node, 0, 4);
  const Integers pads = integers(node, 1);
  const OnnxAttribute* mode = find(node, "mode");
  if (mode && mode->text != "constant") refuse(node, "mode = {}: only zeros can be added", printable(mode->text));
  if (has_input(node, 2) && floats(node, 2) != std::vector<float>{0}) {
    refuse(node, "only zeros can be added");
  }
  const bool spatial = pads.size() == 8 && pads[0] == 0 && pads[1] == 0 && pads[4] == 0 && pads[5] == 0;
  if (has_input(node, 3) || !spatial || pads[2] < 0 || pads[3] < 0 || pads[2] != pads[6] || pads[3] != pads[7]) {
    refuse(node, "pads = [{}]: pads of the same size on both sides of height and width are wanted",
           fmt::join(pads, ","));
  }
  x.pad_h = pads[2];
  x.pad_w = pads[3];
  set(node, x);
}

void OnnxImporter::global_average_pool(const OnnxNode& node) {
  Value y = add("global_avg_pool", names_.layer(node), {computed(node, 0, 4)});
  y.pooled = true;
  set(node, y);
}

void OnnxImporter::reduce_mean(const OnnxNode& node) {
  const Value& x = computed(node, 0, 4);
  const OnnxAttribute* attribute = find(node, "axes");
  if (!are_spatial(attribute ? attribute->integers : integers(node, 1))) {
    refuse(node, "only the mean over height and width can be computed");
  }
  const std::string name = names_.layer(node);
  Value y = add("global_avg_pool", name, {x});
  y.pooled = true;
  if (integer(node, "keepdims", 1) == 0) {
    y = add("flatten", names_.unused(name + ".flatten"), {y});
    y.rank = 2;
  }
  set(node, y);
}

// ---- normalization, pointwise

void OnnxImporter::batch_normalization(const OnnxNode& node) {
  const Value& x = computed(node, 0, 4);
  const int64_t channels = weight_shape(node, 1, 1)[0];
  const std::string name = names_.layer(node, node.inputs[1]);
  Value y = add("batch_norm", name, {x}, fmt::format(", epsilon = {}", number(node, "epsilon", 1e-5F)));
  size_t i = 1;
  for (const char* part : {".weight", ".bias", ".running_mean", ".running_var"})
    take(node, i++, name + part, {channels});
  y.head = -1;
  set(node, y);
}

void OnnxImporter::lrn(const OnnxNode& node) {
  Value y = add("local_response_norm", names_.layer(node), {computed(node, 0, 4)},
                fmt::format(", size = {}, alpha = {}, beta = {}, k = {}", integer(node, "size", 0),
                            number(node, "alpha", 1e-4F), number(node, "beta", 0.75F), number(node, "bias", 1)));
  y.head = -1;
  set(node, y);
}

void OnnxImporter::relu(const OnnxNode& node) { set(node, add("relu", names_.layer(node), {computed(node, 0)})); }

// Becomes ReLU6, or ReLU if there is no upper limit.
void OnnxImporter::clip(const OnnxNode& node) {
  const bool limited = has_input(node, 2);
  if (!has_input(node, 1) || floats(node, 1) != std::vector<float>{0} ||
      (limited && floats(node, 2) != std::vector<float>{6})) {
    refuse(node, "only the limits 0 and 6, ReLU6, have an equal in a layer");
  }
  set(node, add(limited ? "relu6" : "relu", names_.layer(node), {computed(node, 0)}));
}

// Uses the rate of training, even if the file was exported for evaluation.
void OnnxImporter::dropout(const OnnxNode& node) {
  const std::vector<float> rate = has_input(node, 1) ? floats(node, 1) : std::vector<float>{0.5F};
  if (rate.size() != 1) refuse(node, "its rate is {} numbers", rate.size());
  set(node, add("dropout", names_.layer(node), {computed(node, 0)}, fmt::format(", rate = {}", rate[0])));
}

// Softmax is part of the loss.
void OnnxImporter::softmax(const OnnxNode& node) {
  if (node.outputs[0] != graph_.outputs[0]) refuse(node, "it can only be the last operation, where the loss has it");
  const int64_t axis = integer(node, "axis", -1);
  if (axis != 1 && axis != -1) refuse(node, "axis = {}: classes are axis 1", axis);
  set(node, computed(node, 0, 2));
}

void OnnxImporter::identity(const OnnxNode& node) { set(node, input(node, 0)); }

// ---- sums and products

void OnnxImporter::add_or_bias(const OnnxNode& node) {
  if (node.inputs.size() != 2) refuse(node, "it has {} inputs; two are wanted", node.inputs.size());
  for (const size_t i : {0, 1}) {
    const OnnxNode* product = input(node, i).product;
    if (!product) continue;
    const bool is_bias = input(node, 1 - i).tensor != nullptr;
    take_linear(*product, computed(*product, 0, 2), is_bias ? node : *product,
                is_bias ? std::optional(1 - i) : std::nullopt, true);
    if (is_bias) return;
  }
  const Value &x = computed(node, 0), &y = computed(node, 1, x.rank);
  Value sum = add("add", names_.layer(node), {x, y});
  sum.head = -1;
  sum.pooled = x.pooled && y.pooled;
  set(node, sum);
}

// The bias is in the Add that is the only reader of the product.
void OnnxImporter::mat_mul(const OnnxNode& node) {
  const Value& x = computed(node, 0, 2);
  weight_shape(node, 1, 2);
  const std::vector<const OnnxNode*>& readers = readers_[node.outputs[0]];
  if (readers.size() == 1 && readers[0]->type == "Add" && node.outputs[0] != graph_.outputs[0]) {
    return set(node, {.rank = 2, .product = &node});
  }
  take_linear(node, x, node, {}, true);
}

void OnnxImporter::gemm(const OnnxNode& node) {
  for (const char* factor : {"alpha", "beta"}) {
    if (number(node, factor, 1) != "1")
      refuse(node, "{} = {} has no equal in a layer; only 1 has", factor, number(node, factor, 1));
  }
  require_integer(node, "transA", 0);
  const std::optional<size_t> bias = has_input(node, 2) ? std::optional<size_t>(2) : std::nullopt;
  take_linear(node, computed(node, 0, 2), node, bias, integer(node, "transB", 0) == 0);
}

// `last` is the node whose output is the layer's; one of its inputs is the bias, if any. `transposed`: the weights are
// [inputs, outputs].
void OnnxImporter::take_linear(const OnnxNode& product, const Value& x, const OnnxNode& last,
                               std::optional<size_t> bias, bool transposed) {
  const Integers& w = weight_shape(product, 1, 2);
  transposed ^= input(product, 1).transposed;
  const int64_t inputs = w[transposed ? 0 : 1], outputs = w[transposed ? 1 : 0];
  const std::string name = names_.layer(product, constant(product, 1).name);
  Value y = add("linear", name, {x}, fmt::format("{}, outputs = {}", bias ? "" : ", bias = false", outputs));
  take(product, 1, name + ".weight", {outputs, inputs}, transposed);
  if (bias) take(last, *bias, name + ".bias", {outputs});
  y.head = y.layer;
  set(last, y);
}

// ---- shapes

void OnnxImporter::concat(const OnnxNode& node) {
  if (node.inputs.empty()) refuse(node, "it has no inputs");
  const int64_t axis = integer(node, "axis", 0);
  if (input(node, 0).integers || input(node, 0).tensor) {
    Integers joined;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Integers more = integers(node, i);
      joined.insert(joined.end(), more.begin(), more.end());
      if (joined.size() > 8) refuse(node, "it makes a shape of more than 8 dimensions");
    }
    return set(node, {.integers = joined});
  }
  std::vector<Value> members;
  for (size_t i = 0; i < node.inputs.size(); ++i) members.push_back(computed(node, i, 4));
  if (axis != 1 && axis != -3) refuse(node, "axis = {}: only channels, axis 1, can be concatenated", axis);
  if (members.size() == 1) return set(node, members[0]);
  Value y = add("concat", names_.layer(node), members);
  y.head = -1;
  y.pooled = false;
  set(node, y);
}

void OnnxImporter::set_flat(const OnnxNode& node, const Value& x) {
  if (x.rank == 2) return set(node, x);
  Value y = add("flatten", names_.layer(node), {x});
  y.rank = 2;
  if (!x.pooled) y.head = -1;
  set(node, y);
}

void OnnxImporter::flatten(const OnnxNode& node) {
  const Value& x = computed(node, 0);
  const int64_t axis = integer(node, "axis", 1);
  if (axis != 1 && axis != 1 - x.rank) refuse(node, "axis = {}: only all of a sample can be flattened, axis 1", axis);
  set_flat(node, x);
}

// Only shapes [N,C*H*W] are supported. With another shape, the weights would not have the shapes of those in the file.
void OnnxImporter::reshape(const OnnxNode& node) {
  const Value& x = computed(node, 0);
  const Integers shape = integers(node, 1);
  if (shape.size() != 2) {
    refuse(node, "a shape of {} dimensions has no equal in a layer; only [N,C*H*W] has", shape.size());
  }
  set_flat(node, x);
}

void OnnxImporter::squeeze(const OnnxNode& node) {
  const Value& x = computed(node, 0, 4);
  if (!x.pooled || !are_spatial(integers(node, 1))) refuse(node, "only height and width of 1 can be removed");
  set_flat(node, x);
}

// Supported only for weights, because PyTorch exports a linear layer without a bias in this way.
void OnnxImporter::transpose(const OnnxNode& node) {
  weight_shape(node, 0, 2);
  const OnnxAttribute* perm = find(node, "perm");
  if (perm && perm->integers != Integers{1, 0}) refuse(node, "perm = [{}]: only [1,0]", fmt::join(perm->integers, ","));
  set(node, {.tensor = &constant(node, 0), .transposed = !input(node, 0).transposed});
}

void OnnxImporter::constant_node(const OnnxNode& node) {
  if (const OnnxAttribute* value = find(node, "value")) {
    constants_.push_back(parse_onnx_tensor(value->tensor));
    return set(node, {.tensor = &constants_.back()});
  }
  const OnnxAttribute* list = find(node, "value_ints");
  set(node, {.integers = list ? list->integers : Integers{integer(node, "value_int", 0)}});
}

void OnnxImporter::shape_of(const OnnxNode& node) {
  Integers shape(static_cast<size_t>(computed(node, 0).rank), kUnknown);
  shape[0] = 0;
  const auto rank = std::ssize(shape);
  const int64_t begin = integer(node, "start", 0), end = std::min<int64_t>(integer(node, "end", rank), rank);
  if (begin < 0 || end < begin) refuse(node, "its range from {} to {} is not known", begin, end);
  set(node, {.integers = Integers(shape.begin() + begin, shape.begin() + end)});
}

void OnnxImporter::gather(const OnnxNode& node) {
  if (!input(node, 0).integers) refuse(node, "only elements of a shape can be taken");
  const Integers list = integers(node, 0), at = integers(node, 1);
  if (at.size() != 1) refuse(node, "only one element of a shape can be taken");
  const int64_t i = at[0] + (at[0] < 0 ? std::ssize(list) : 0);
  if (i < 0 || i >= std::ssize(list)) refuse(node, "it takes element {} of {}", at[0], list.size());
  set(node, {.integers = Integers{list[static_cast<size_t>(i)]}});
}

void OnnxImporter::unsqueeze(const OnnxNode& node) {
  const Integers shape = integers(node, 0);
  if (shape.size() != 1) refuse(node, "only an element of a shape can get a dimension");
  set(node, {.integers = shape});
}

}  // namespace lockstep
