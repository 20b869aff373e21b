// ONNX files for tests, message by message.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "exchange/onnx_fields.h"
#include "lockstep/io/protobuf_writer.h"

namespace lockstep::testing {

using Dims = std::vector<int64_t>;
using Texts = std::vector<std::string>;

inline std::string onnx_tensor(const std::string& name, const Dims& dims, const std::vector<float>& values) {
  ProtobufWriter out;
  for (const int64_t extent : dims) out.integer(onnx_field::kTensorDims, extent);
  out.integer(onnx_field::kTensorType, onnx_type::kFloat).text(onnx_field::kTensorName, name);
  return out.bytes(onnx_field::kTensorData, std::as_bytes(std::span(values))).data();
}

inline std::string onnx_tensor(const std::string& name, const Dims& values) {
  ProtobufWriter out;
  out.integer(onnx_field::kTensorDims, static_cast<int64_t>(values.size()));
  out.integer(onnx_field::kTensorType, onnx_type::kInt64).text(onnx_field::kTensorName, name);
  for (const int64_t value : values) out.integer(onnx_field::kTensorInt64s, value);
  return out.data();
}

// A tensor whose values count from 0 by 1/8.
inline std::string onnx_weights(const std::string& name, const Dims& dims) {
  size_t elements = 1;
  for (const int64_t extent : dims) elements *= static_cast<size_t>(extent);
  std::vector<float> values(elements);
  for (size_t i = 0; i < elements; ++i) values[i] = static_cast<float>(i) / 8;
  return onnx_tensor(name, dims, values);
}

struct OnnxNodeText {
  std::string type, name;
  Texts inputs, outputs;
  std::vector<std::pair<std::string, Dims>> lists = {};
  std::vector<std::pair<std::string, int64_t>> integers = {};
  std::vector<std::pair<std::string, std::string>> texts = {}, tensors = {};
  std::string domain = {};
};

inline std::string onnx_node(const OnnxNodeText& node) {
  ProtobufWriter out;
  for (const std::string& input : node.inputs) out.text(onnx_field::kNodeInput, input);
  for (const std::string& output : node.outputs) out.text(onnx_field::kNodeOutput, output);
  out.text(onnx_field::kNodeName, node.name).text(onnx_field::kNodeType, node.type);
  if (!node.domain.empty()) out.text(onnx_field::kNodeDomain, node.domain);
  const auto attribute = [](const std::string& name) {
    return ProtobufWriter().text(onnx_field::kAttributeName, name);
  };
  for (const auto& [name, values] : node.lists) {
    ProtobufWriter a = attribute(name);
    for (const int64_t value : values) a.integer(onnx_field::kAttributeInts, value);
    out.message(onnx_field::kNodeAttribute, a);
  }
  for (const auto& [name, value] : node.integers) {
    out.message(onnx_field::kNodeAttribute, attribute(name).integer(onnx_field::kAttributeInt, value));
  }
  for (const auto& [name, value] : node.texts) {
    out.message(onnx_field::kNodeAttribute, attribute(name).text(onnx_field::kAttributeText, value));
  }
  for (const auto& [name, tensor] : node.tensors) {
    out.message(onnx_field::kNodeAttribute, attribute(name).text(onnx_field::kAttributeTensor, tensor));
  }
  return out.data();
}

struct OnnxModelText {
  Texts nodes, tensors;
  Dims input = {0, 3, 8, 8};  // 0: any extent
  Texts outputs = {"y"};
  int64_t opset = 13;
  int64_t input_type = onnx_type::kFloat;
};

inline std::string onnx_model(const OnnxModelText& model) {
  ProtobufWriter graph, dims;
  for (const std::string& node : model.nodes) graph.text(onnx_field::kGraphNode, node);
  for (const std::string& tensor : model.tensors) graph.text(onnx_field::kGraphInitializer, tensor);
  for (const int64_t extent : model.input) {
    const ProtobufWriter dim = extent == 0 ? ProtobufWriter().text(onnx_field::kDimParameter, "N")
                                           : ProtobufWriter().integer(onnx_field::kDimValue, extent);
    dims.message(onnx_field::kShapeDim, dim);
  }
  const ProtobufWriter tensor = ProtobufWriter()
                                    .integer(onnx_field::kTensorTypeElement, model.input_type)
                                    .message(onnx_field::kTensorTypeShape, dims);
  graph.message(onnx_field::kGraphInput,
                ProtobufWriter()
                    .text(onnx_field::kValueName, "x")
                    .message(onnx_field::kValueType, ProtobufWriter().message(onnx_field::kTypeTensor, tensor)));
  for (const std::string& output : model.outputs) {
    graph.message(onnx_field::kGraphOutput, ProtobufWriter().text(onnx_field::kValueName, output));
  }
  return ProtobufWriter()
      .integer(onnx_field::kModelIrVersion, 8)
      .message(onnx_field::kModelGraph, graph)
      .message(onnx_field::kModelOpset, ProtobufWriter().integer(onnx_field::kOpsetVersion, model.opset))
      .data();
}

}  // namespace lockstep::testing
