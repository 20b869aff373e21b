// The messages of an ONNX file, as far as the importer needs them: views of its bytes, which must outlive them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct OnnxTensor {
  std::span<const std::byte> message;
  std::string_view name;
  std::vector<int64_t> dims;
  int64_t type = 0;  // TensorProto.DataType
  // Its values are `bytes` bytes at `offset` of another file.
  bool external = false;
  std::string location;
  int64_t offset = 0, bytes = 0;
};

struct OnnxAttribute {
  std::string_view name, text;
  float number = 0;
  int64_t integer = 0;
  std::vector<int64_t> integers;
  std::span<const std::byte> tensor;  // its message
};

struct OnnxNode {
  std::string_view name, type, domain;
  std::vector<std::string_view> inputs, outputs;
  std::vector<OnnxAttribute> attributes;
};

struct OnnxInput {
  std::string_view name;
  int64_t type = 0;
  std::vector<int64_t> dims;  // 0: any extent
};

struct OnnxGraph {
  int64_t opset = 0;
  std::vector<OnnxNode> nodes;
  std::map<std::string_view, OnnxTensor> initializers;
  std::vector<OnnxInput> inputs;  // without initializers
  std::vector<std::string_view> outputs;
};

// Throws MalformedMessage for bytes that are not a message, and Error(config), without the name of the file, for a
// model without a graph, with sparse initializers, or beyond the limits on lists.
OnnxGraph parse_onnx(std::span<const std::byte> file);
OnnxTensor parse_onnx_tensor(std::span<const std::byte> message);

// Returns the values, as many as the shape has elements. `external`: the bytes of a tensor whose values are in another
// file. Throws Error(config), without the name of the file, for a tensor of another type or with another number of
// values.
std::vector<float> onnx_floats(const OnnxTensor& tensor, std::span<const std::byte> external = {});
std::vector<int64_t> onnx_integers(const OnnxTensor& tensor);

}  // namespace lockstep
