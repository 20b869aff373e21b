#include "exchange/onnx_file.h"

#include <bit>
#include <cstring>

#include "exchange/onnx_fields.h"
#include "lockstep/base/checked_size.h"
#include "lockstep/base/error.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/base/printable.h"
#include "lockstep/io/protobuf_reader.h"

namespace lockstep {
namespace {

namespace field = onnx_field;
using namespace onnx_type;
using Bytes = std::span<const std::byte>;

// A list costs more memory than its bytes in the file. These are more entries than networks have.
constexpr size_t kMostNodes = 100'000, kMostNames = 1024, kMostIntegers = 64;

template <class T>
T& append(std::vector<T>& list, size_t most, std::string_view what) {
  if (list.size() == most) fail(ExitCode::config, "it has more than {} {}", most, what);
  return list.emplace_back();
}

std::string_view text_of(const ProtobufField& f) {
  return {reinterpret_cast<const char*>(f.bytes.data()), f.bytes.size()};
}

// Appends the values of a repeated integer field, packed or not.
void append_integers(const ProtobufField& f, std::vector<int64_t>& list) {
  if (!f.is_bytes()) {
    append(list, kMostIntegers, "integers in a list") = static_cast<int64_t>(f.value);
    return;
  }
  for (ProtobufReader packed(f.bytes); !packed.done();) {
    append(list, kMostIntegers, "integers in a list") = static_cast<int64_t>(packed.varint());
  }
}

OnnxAttribute parse_attribute(Bytes message) {
  OnnxAttribute attribute;
  for (ProtobufReader reader(message); !reader.done();) {
    const ProtobufField f = reader.next();
    if (f.number == field::kAttributeName) attribute.name = text_of(f);
    if (f.number == field::kAttributeFloat) attribute.number = std::bit_cast<float>(static_cast<uint32_t>(f.value));
    if (f.number == field::kAttributeInt) attribute.integer = static_cast<int64_t>(f.value);
    if (f.number == field::kAttributeText) attribute.text = text_of(f);
    if (f.number == field::kAttributeTensor) attribute.tensor = f.bytes;
    if (f.number == field::kAttributeInts) append_integers(f, attribute.integers);
  }
  return attribute;
}

OnnxNode parse_node(Bytes message) {
  OnnxNode node;
  for (ProtobufReader reader(message); !reader.done();) {
    const ProtobufField f = reader.next();
    if (f.number == field::kNodeInput) append(node.inputs, kMostNames, "inputs of a node") = text_of(f);
    if (f.number == field::kNodeOutput) append(node.outputs, kMostNames, "outputs of a node") = text_of(f);
    if (f.number == field::kNodeName) node.name = text_of(f);
    if (f.number == field::kNodeType) node.type = text_of(f);
    if (f.number == field::kNodeDomain) node.domain = text_of(f);
    if (f.number == field::kNodeAttribute) {
      append(node.attributes, kMostNames, "attributes of a node") = parse_attribute(f.bytes);
    }
  }
  return node;
}

// Returns the only needed field of a message, such as the shape in a type; empty if it is absent.
Bytes part(Bytes message, uint64_t number) {
  Bytes found;
  for (ProtobufReader reader(message); !reader.done();) {
    const ProtobufField f = reader.next();
    if (f.number == number) found = f.bytes;
  }
  return found;
}

OnnxInput parse_input(Bytes message) {
  OnnxInput input;
  for (ProtobufReader reader(message); !reader.done();) {
    const ProtobufField f = reader.next();
    if (f.number == field::kValueName) input.name = text_of(f);
  }
  const Bytes tensor = part(part(message, field::kValueType), field::kTypeTensor);
  for (ProtobufReader reader(tensor); !reader.done();) {
    const ProtobufField f = reader.next();
    if (f.number == field::kTensorTypeElement) input.type = static_cast<int64_t>(f.value);
  }
  for (ProtobufReader dims(part(tensor, field::kTensorTypeShape)); !dims.done();) {
    const ProtobufField dim = dims.next();
    if (dim.number != field::kShapeDim) continue;
    int64_t& extent = append(input.dims, kMostIntegers, "dimensions of an input");
    for (ProtobufReader reader(dim.bytes); !reader.done();) {
      const ProtobufField f = reader.next();
      if (f.number == field::kDimValue) extent = static_cast<int64_t>(f.value);
    }
  }
  return input;
}

void parse_graph(Bytes message, OnnxGraph& graph) {
  for (ProtobufReader reader(message); !reader.done();) {
    const ProtobufField f = reader.next();
    if (f.number == field::kGraphNode) append(graph.nodes, kMostNodes, "nodes") = parse_node(f.bytes);
    if (f.number == field::kGraphInput) append(graph.inputs, kMostNodes, "inputs") = parse_input(f.bytes);
    if (f.number == field::kGraphOutput) {
      append(graph.outputs, kMostNames, "outputs") = parse_input(f.bytes).name;
    }
    if (f.number == field::kGraphInitializer) {
      const OnnxTensor tensor = parse_onnx_tensor(f.bytes);
      graph.initializers.insert_or_assign(tensor.name, tensor);
      if (graph.initializers.size() > kMostNodes) fail(ExitCode::config, "it has more than {} tensors", kMostNodes);
    }
    if (f.number == field::kGraphSparseInitializer) {
      fail(ExitCode::config, "it has sparse tensors, which are not read: export it with dense weights");
    }
  }
  std::erase_if(graph.inputs, [&](const OnnxInput& input) { return graph.initializers.contains(input.name); });
}

// Calls take_raw(bytes) or take(field) for each part of the values: an element of a repeated field, or a packed list.
template <class TakeRaw, class Take>
void for_each_part(const OnnxTensor& tensor, uint64_t list, const TakeRaw& take_raw, const Take& take) {
  for (ProtobufReader reader(tensor.message); !reader.done();) {
    const ProtobufField f = reader.next();
    if (f.number == field::kTensorData) take_raw(f.bytes);
    if (f.number == list) take(f);
  }
}

// Checks the type, and returns the number of values according to the shape, for which there are enough bytes.
size_t expected_values(const OnnxTensor& tensor, int64_t type, std::string_view type_name) {
  const std::string name = printable(tensor.name);
  if (tensor.type != type) {
    fail(ExitCode::config, "{} has elements of type {} of ONNX, {} are wanted", name, tensor.type, type_name);
  }
  const auto elements = checked_product(tensor.dims);
  const auto bytes = tensor.external ? static_cast<uint64_t>(tensor.bytes) : tensor.message.size();
  if (!elements || static_cast<uint64_t>(*elements) > bytes) {
    fail(ExitCode::config, "{} has fewer values than its shape says", name);
  }
  return static_cast<size_t>(*elements);
}

template <class T>
void require_count(const OnnxTensor& tensor, const std::vector<T>& values, size_t expected) {
  if (values.size() == expected) return;
  fail(ExitCode::config, "{} has {} values, and {} by its shape", printable(tensor.name), values.size(), expected);
}

template <class T>
void append_raw(Bytes raw, std::vector<T>& values) {
  const size_t before = values.size();
  values.resize(before + raw.size() / sizeof(T));
  if (raw.size() >= sizeof(T)) std::memcpy(&values[before], raw.data(), raw.size() / sizeof(T) * sizeof(T));
}

void parse_external(Bytes entry, OnnxTensor& tensor) {
  std::string_view key, value;
  for (ProtobufReader reader(entry); !reader.done();) {
    const ProtobufField f = reader.next();
    if (f.number == field::kEntryKey) key = text_of(f);
    if (f.number == field::kEntryValue) value = text_of(f);
  }
  if (key == "location") tensor.location = value;
  if (key != "offset" && key != "length") return;
  const auto number = parse_number<int64_t>(value);
  if (!number || *number < 0) {
    fail(ExitCode::config, "{} of {} is {}, not a number", key, printable(tensor.name), printable(value));
  }
  (key == "offset" ? tensor.offset : tensor.bytes) = *number;
}

}  // namespace

OnnxTensor parse_onnx_tensor(Bytes message) {
  OnnxTensor tensor{.message = message};
  for (ProtobufReader reader(message); !reader.done();) {
    const ProtobufField f = reader.next();
    if (f.number == field::kTensorName) tensor.name = text_of(f);
    if (f.number == field::kTensorDims) append_integers(f, tensor.dims);
    if (f.number == field::kTensorType) tensor.type = static_cast<int64_t>(f.value);
    if (f.number == field::kTensorLocation) tensor.external = f.value == kExternal;
    if (f.number == field::kTensorExternal) parse_external(f.bytes, tensor);
  }
  if (tensor.external && tensor.bytes == 0) {  // the length may be left out: it follows from the shape
    std::vector<int64_t> factors = tensor.dims;
    factors.push_back(sizeof(float));
    tensor.bytes = checked_product(factors).value_or(0);
  }
  return tensor;
}

OnnxGraph parse_onnx(Bytes file) {
  OnnxGraph graph;
  Bytes message;
  for (ProtobufReader reader(file); !reader.done();) {
    const ProtobufField f = reader.next();
    if (f.number == field::kModelGraph) message = f.bytes;
    if (f.number != field::kModelOpset) continue;
    std::string_view domain;
    int64_t version = 0;
    for (ProtobufReader opset(f.bytes); !opset.done();) {
      const ProtobufField g = opset.next();
      if (g.number == field::kOpsetDomain) domain = text_of(g);
      if (g.number == field::kOpsetVersion) version = static_cast<int64_t>(g.value);
    }
    if (domain.empty() || domain == "ai.onnx") graph.opset = version;
  }
  if (message.empty()) throw MalformedMessage("it has no graph");
  parse_graph(message, graph);
  return graph;
}

std::vector<float> onnx_floats(const OnnxTensor& tensor, Bytes external) {
  const size_t expected = expected_values(tensor, kFloat, "32-bit floats");
  std::vector<float> values;
  values.reserve(expected);
  append_raw(external, values);
  for_each_part(
      tensor, field::kTensorFloats, [&](Bytes raw) { append_raw(raw, values); },
      [&](const ProtobufField& f) {
        if (f.is_bytes()) return append_raw(f.bytes, values);
        values.push_back(std::bit_cast<float>(static_cast<uint32_t>(f.value)));
      });
  require_count(tensor, values, expected);
  return values;
}

std::vector<int64_t> onnx_integers(const OnnxTensor& tensor) {
  const size_t expected = expected_values(tensor, kInt64, "64-bit integers");
  if (expected > kMostIntegers) fail(ExitCode::config, "{} has too many values for a shape", printable(tensor.name));
  std::vector<int64_t> values;
  for_each_part(
      tensor, field::kTensorInt64s,
      [&](Bytes raw) {
        if (raw.size() <= kMostIntegers * sizeof(int64_t)) append_raw(raw, values);
      },
      [&](const ProtobufField& f) { append_integers(f, values); });
  require_count(tensor, values, expected);
  return values;
}

}  // namespace lockstep
