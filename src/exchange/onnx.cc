#include "lockstep/exchange/onnx.h"

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "exchange/onnx_fields.h"
#include "lockstep/base/error.h"
#include "lockstep/io/protobuf_writer.h"

namespace lockstep {
namespace {

constexpr int64_t kIrVersion = 7, kOpset = 13;
const char* const kOutput = "logits";

namespace field = onnx_field;
using namespace onnx_type;

ProtobufWriter attribute(const char* name, int64_t value) {
  return ProtobufWriter()
      .text(field::kAttributeName, name)
      .integer(field::kAttributeInt, value)
      .integer(field::kAttributeType, kInt);
}

ProtobufWriter attribute(const char* name, double value) {
  return ProtobufWriter()
      .text(field::kAttributeName, name)
      .float32(field::kAttributeFloat, static_cast<float>(value))
      .integer(field::kAttributeType, kFloatAttribute);
}

ProtobufWriter attribute(const char* name, std::initializer_list<int64_t> values) {
  ProtobufWriter out;
  out.text(field::kAttributeName, name);
  for (const int64_t value : values) out.integer(field::kAttributeInts, value);
  return out.integer(field::kAttributeType, kInts);
}

using Attributes = std::vector<ProtobufWriter>;

Attributes window_attributes(const Window& w) {
  return {attribute("kernel_shape", {w.kernel_h, w.kernel_w}), attribute("strides", {w.stride_h, w.stride_w}),
          attribute("pads", {w.pad_h, w.pad_w, w.pad_h, w.pad_w})};
}

// Returns the name of an input in the file; null if the file does not have it.
const char* input_name(ExternalInput input) {
  switch (input) {
    case ExternalInput::images:
      return "images";
    case ExternalInput::ids:
      return "ids";
    case ExternalInput::values:
      return "values";
    default:
      return nullptr;
  }
}

// `free` has names of the first dimensions, which may have any extent; the others have those of `shape`.
ProtobufWriter value_info(const char* name, const Shape& shape, const std::vector<const char*>& free = {"N"},
                          int64_t element = kFloat) {
  ProtobufWriter dims;
  for (const char* dim : free) dims.message(field::kShapeDim, ProtobufWriter().text(field::kDimParameter, dim));
  for (int i = static_cast<int>(free.size()); i < shape.rank(); ++i) {
    dims.message(field::kShapeDim, ProtobufWriter().integer(field::kDimValue, shape[i]));
  }
  ProtobufWriter tensor;
  tensor.integer(field::kTensorTypeElement, element).message(field::kTensorTypeShape, dims);
  return ProtobufWriter()
      .text(field::kValueName, name)
      .message(field::kValueType, ProtobufWriter().message(field::kTypeTensor, tensor));
}

ProtobufWriter input_info(const char* name, const Value& value) {
  if (value.external == ExternalInput::images) return value_info(name, value.desc.shape);
  return value_info(name, value.desc.shape, {"N", "L"}, value.external == ExternalInput::ids ? kInt64 : kFloat);
}

template <class Operation>
concept NotInOnnx = !Operation::facts.onnx;

// Writes the nodes of one graph, in its order, to a GraphProto.
class Drawing {
 public:
  Drawing(const Graph& graph, std::span<const NamedTensor> weights, const OnnxOptions& options)
      : graph_(graph), readers_(readers_of(graph)), fold_(options.fold_batch_norm) {
    for (const NamedTensor& tensor : weights) weights_[tensor.name] = &tensor;
    out_.text(field::kGraphName, options.name);
    logits_ = graph.losses.at(0).logits;
  }

  ProtobufWriter finish() && {
    for (const Node& node : graph_.nodes) {
      node_ = &node;
      std::visit([this](const auto& op) { draw(op); }, node.op);
    }
    for (const Value& value : graph_.values) {
      const char* name = value.role == ValueRole::external ? input_name(value.external) : nullptr;
      if (name) out_.message(field::kGraphInput, input_info(name, value));
    }
    out_.message(field::kGraphOutput, value_info(kOutput, graph_.value(logits_).desc.shape));
    return std::move(out_);
  }

 private:
  void draw(const Conv2d& op) {
    const Node* norm = fold_ ? norm_after(*node_) : nullptr;
    std::vector<std::string> inputs = {name(node_->inputs[0])};
    if (norm) {
      fold(*norm, op.bias, inputs);
    } else {
      for (size_t i = 1; i < node_->inputs.size(); ++i) inputs.push_back(name(node_->inputs[i]));
    }
    Attributes attributes = window_attributes(op.window);
    if (op.groups != 1) attributes.push_back(attribute("group", op.groups));
    emit("Conv", inputs, attributes);
  }

  // y[n] = bias + sum over l of values[n,l] * table[ids[n,l]], without the ids below 0: a row [1,L] times a matrix
  // [L,D].
  void draw(const EmbeddingBag&) {
    const std::string table = name(node_->inputs[0]), ids = name(node_->inputs[1]), values = name(node_->inputs[2]);
    const std::string& own = node_->name;
    const std::string id_zero = own + ":id_zero", value_zero = own + ":value_zero", axis = own + ":axis";
    initializer(id_zero, 0);
    initializer({value_zero, Shape({1}), {0}});
    initializer(axis, 1);
    emit_to(own + ":absent", "Less", {ids, id_zero});
    emit_to(own + ":present", "Where", {own + ":absent", value_zero, values});
    emit_to(own + ":row", "Unsqueeze", {own + ":present", axis});
    emit_to(own + ":matrix", "Gather", {table, ids});
    emit_to(own + ":product", "MatMul", {own + ":row", own + ":matrix"});
    emit_to(own + ":sum", "Squeeze", {own + ":product", axis});
    emit("Add", {own + ":sum", name(node_->inputs[3])});
  }

  void draw(const Linear&) { emit("Gemm", inputs(), {attribute("transB", int64_t{1})}); }

  void draw(const BatchNormInference& op) {
    if (!folded_.contains(node_)) {
      emit("BatchNormalization", inputs(), {attribute("epsilon", op.epsilon)});
    } else {
      same_as(node_->outputs[0], node_->inputs[0]);
    }
    require(!op.relu, "{}: a rewritten graph", node_->name);
  }

  void draw(const Relu& op) {
    if (!op.six) return emit("Relu", inputs());
    const std::string zero = node_->name + ":zero", six = node_->name + ":six";
    initializer({zero, Shape(), {0}});
    initializer({six, Shape(), {6}});
    emit("Clip", {name(node_->inputs[0]), zero, six});
  }
  void draw(const Add&) { emit("Sum", inputs()); }
  void draw(const MaxPool& op) { emit("MaxPool", inputs(), window_attributes(op.window)); }

  void draw(const AvgPool& op) {
    Attributes attributes = window_attributes(op.window);
    attributes.push_back(attribute("count_include_pad", int64_t{op.count_include_pad}));
    emit("AveragePool", inputs(), attributes);
  }

  void draw(const LocalResponseNorm& op) {
    if (op.size % 2 == 0) {  // ONNX puts the extra channel after, PyTorch before
      fail(ExitCode::config, "{}: a normalization over an even number of channels has no equal in ONNX", node_->name);
    }
    emit("LRN", inputs(),
         {attribute("size", op.size), attribute("alpha", op.alpha), attribute("beta", op.beta),
          attribute("bias", op.k)});
  }

  void draw(const Concat&) { emit("Concat", inputs(), {attribute("axis", int64_t{1})}); }

  void draw(const Reshape& op) {
    require(op.shape.rank() == 2, "{}: only flattening can be drawn", node_->name);
    emit("Flatten", inputs(), {attribute("axis", int64_t{1})});
  }

  void draw(const SoftmaxCrossEntropy&) {}  // it needs labels, so it is left out

  template <NotInOnnx Operation>
  void draw(const Operation&) {
    fail(ExitCode::config, "{}: the operation {} cannot be written as ONNX", node_->name, op_name(node_->op));
  }

  // Returns the batch norm that is the only reader of a convolution, or null.
  const Node* norm_after(const Node& conv) const {
    const std::vector<NodeId>& readers = readers_[conv.outputs[0]];
    if (readers.size() != 1) return nullptr;
    const Node& reader = graph_.node(readers[0]);
    return std::holds_alternative<BatchNormInference>(reader.op) ? &reader : nullptr;
  }

  // y = (conv(x) - mean) * scale / sqrt(var + epsilon) + shift, as a convolution with other weights and a bias.
  void fold(const Node& norm, bool has_bias, std::vector<std::string>& inputs) {
    const NamedTensor& weights = weights_of(node_->inputs[1]);
    const auto& scale = weights_of(norm.inputs[1]).values;
    const auto& shift = weights_of(norm.inputs[2]).values;
    const auto& mean = weights_of(norm.inputs[3]).values;
    const auto& var = weights_of(norm.inputs[4]).values;
    const double epsilon = std::get<BatchNormInference>(norm.op).epsilon;
    NamedTensor folded{weights.name + ":folded", weights.shape, weights.values};
    NamedTensor bias{weights.name + ":folded_bias", Shape({weights.shape[0]}), shift};
    const size_t row = folded.values.size() / bias.values.size();
    for (size_t c = 0; c < bias.values.size(); ++c) {
      const double factor = scale[c] / std::sqrt(var[c] + epsilon);
      const double before = has_bias ? weights_of(node_->inputs[2]).values[c] : 0.0;
      bias.values[c] = static_cast<float>(shift[c] + (before - mean[c]) * factor);
      for (size_t i = c * row; i < (c + 1) * row; ++i) {
        folded.values[i] = static_cast<float>(folded.values[i] * factor);
      }
    }
    for (const NamedTensor* tensor : {&folded, &bias}) {
      initializer(*tensor);
      inputs.push_back(tensor->name);
    }
    folded_.insert(&norm);
  }

  const NamedTensor& weights_of(ValueId value) const {
    const std::string& parameter = graph_.parameters[graph_.value(value).parameter].name;
    const auto found = weights_.find(parameter);
    require(found != weights_.end(), "{}: no weights", parameter);
    return *found->second;
  }

  // Returns the name of a value in the file; writes a parameter when it is first named.
  std::string name(ValueId id) {
    const auto same = same_.find(id);
    if (same != same_.end()) return name(same->second);
    if (id == logits_) return kOutput;
    const Value& value = graph_.value(id);
    if (value.role == ValueRole::external) return input_name(value.external);
    // Layers of model files may be called like parameters of others, or like the output.
    const bool taken = value.name == kOutput || weights_.contains(value.name);
    if (value.role == ValueRole::computed) return value.name + (taken ? ":output" : "");
    const NamedTensor& tensor = weights_of(id);
    if (written_.insert(tensor.name).second) initializer(tensor);
    return tensor.name;
  }

  std::vector<std::string> inputs() {
    std::vector<std::string> names;
    for (const ValueId input : node_->inputs) names.push_back(name(input));
    return names;
  }

  void same_as(ValueId value, ValueId other) { same_[value] = other; }

  void initializer(const NamedTensor& tensor) {
    ProtobufWriter out;
    for (const int64_t extent : tensor.shape) out.integer(field::kTensorDims, extent);
    out.integer(field::kTensorType, kFloat).text(field::kTensorName, tensor.name);
    out.bytes(field::kTensorData, std::as_bytes(std::span(tensor.values)));
    out_.message(field::kGraphInitializer, out);
  }

  // Writes an int64 [1].
  void initializer(const std::string& name, int64_t value) {
    ProtobufWriter out;
    out.integer(field::kTensorDims, 1).integer(field::kTensorType, kInt64).text(field::kTensorName, name);
    out.bytes(field::kTensorData, std::as_bytes(std::span(&value, 1)));
    out_.message(field::kGraphInitializer, out);
  }

  // Writes the operator that makes the node's output.
  void emit(const char* type, const std::vector<std::string>& inputs, const Attributes& attributes = {}) {
    draw_operator({type, node_->name, name(node_->outputs[0])}, inputs, attributes);
  }
  // Writes an operator before it, which has the name of its output.
  void emit_to(const std::string& output, const char* type, const std::vector<std::string>& inputs) {
    draw_operator({type, output, output}, inputs, {});
  }

  struct Operator {
    const char* type;
    std::string name, output;
  };

  void draw_operator(const Operator& op, const std::vector<std::string>& inputs, const Attributes& attributes) {
    ProtobufWriter out;
    for (const std::string& input : inputs) out.text(field::kNodeInput, input);
    out.text(field::kNodeOutput, op.output);
    out.text(field::kNodeName, op.name).text(field::kNodeType, op.type);
    for (const ProtobufWriter& a : attributes) out.message(field::kNodeAttribute, a);
    out_.message(field::kGraphNode, out);
  }

  const Graph& graph_;
  std::vector<std::vector<NodeId>> readers_;
  const bool fold_;
  ValueId logits_ = -1;
  std::map<std::string, const NamedTensor*> weights_;
  const Node* node_ = nullptr;  // being written
  std::set<const Node*> folded_;
  std::map<ValueId, ValueId> same_;
  std::set<std::string> written_;
  ProtobufWriter out_;
};

}  // namespace

std::string encode_onnx(const Graph& graph, std::span<const NamedTensor> weights, const OnnxOptions& options) {
  ProtobufWriter model;
  model.integer(field::kModelIrVersion, kIrVersion).text(field::kModelProducer, "lockstep");
  model.message(field::kModelGraph, Drawing(graph, weights, options).finish());
  model.message(field::kModelOpset, ProtobufWriter().integer(field::kOpsetVersion, kOpset));
  for (const auto& [key, value] : options.metadata) {
    model.message(field::kModelMetadata, ProtobufWriter().text(field::kEntryKey, key).text(field::kEntryValue, value));
  }
  if (model.data().size() > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail(ExitCode::config, "the model takes {} bytes: an ONNX file holds 2 GB at most", model.data().size());
  }
  return model.data();
}

}  // namespace lockstep
