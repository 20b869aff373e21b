#include "lockstep/exchange/onnx_import.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "exchange/onnx_fields.h"
#include "exchange/onnx_importer.h"
#include "lockstep/base/split_words.h"
#include "lockstep/io/file.h"
#include "lockstep/io/protobuf_reader.h"

namespace lockstep {
namespace {

constexpr int64_t kOldestOpset = 13;
constexpr size_t kMostText = size_t{1} << 20;  // of model.definition
// The bytes that layers may use in addition to twice those of the files, because several layers may share small
// constants.
constexpr size_t kFreeBytes = size_t{1} << 20;

}  // namespace

OnnxModel OnnxImporter::model() && {
  if (graph_.opset < kOldestOpset) {
    fail(ExitCode::config, "{}: its operations are those of opset {}; {} or later is wanted", path_, graph_.opset,
         kOldestOpset);
  }
  read_input();
  for (const auto& [name, tensor] : graph_.initializers) values_[name] = {.tensor = &tensor};
  if (graph_.outputs.size() != 1) {
    fail(ExitCode::config, "{}: it has {} outputs; one is wanted, the logits", path_, graph_.outputs.size());
  }
  const std::set<const OnnxNode*> needed = needed_nodes();
  for (const OnnxNode& node : graph_.nodes) {
    if (!needed.contains(&node)) continue;
    try {
      translate(node);
    } catch (const MalformedMessage& e) {
      refuse(node, "its tensor is cut short ({})", e.what());
    }
  }
  finish();
  return std::move(model_);
}

void OnnxImporter::read_input() {
  if (graph_.inputs.size() != 1) {
    fail(ExitCode::config, "{}: it has {} inputs; one is wanted, the images", path_, graph_.inputs.size());
  }
  const OnnxInput& images = graph_.inputs[0];
  const Integers& dims = images.dims;
  if (images.type != onnx_type::kFloat || dims.size() != 4 || dims[1] != 3 || dims[2] != dims[3] || dims[2] < 0) {
    fail(
        ExitCode::config,
        "{}: its input {} has elements of type {} of ONNX and the shape [{}]; 32-bit floats of the shape [N,3,S,S] are "
        "wanted: square images with three channels",
        path_, printable(images.name), images.type, fmt::join(dims, ","));
  }
  model_.image_size = dims[2];
  values_[images.name] = {};
}

// Nodes that the output does not depend on, such as those of running statistics, are left out.
std::set<const OnnxNode*> OnnxImporter::needed_nodes() {
  std::set<std::string_view> wanted = {graph_.outputs[0]};
  std::set<const OnnxNode*> needed;
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    const auto is_wanted = [&](std::string_view output) { return wanted.contains(output); };
    if (std::ranges::none_of(node->outputs, is_wanted)) continue;
    needed.insert(&*node);
    wanted.insert(node->inputs.begin(), node->inputs.end());
    for (const std::string_view input : node->inputs) readers_[input].push_back(&*node);
    wanted.erase("");  // an input that is left out
  }
  return needed;
}

void OnnxImporter::translate(const OnnxNode& node) {
  const auto all = operators();
  const bool standard = node.domain.empty() || node.domain == "ai.onnx";
  const auto row = standard ? std::ranges::find(all, node.type, &Operator::type) : all.end();
  if (row == all.end()) {
    refuse(node,
           "there is no layer for this operation{}, and one would be needed (docs/extending.md); docs/model_files.md "
           "lists those that there are",
           standard ? "" : fmt::format(" of {}", printable(node.domain)));
  }
  const std::vector<std::string_view> attributes = split_words(row->attributes, ' ');
  for (const OnnxAttribute& a : node.attributes) {
    if (std::ranges::find(attributes, a.name) == attributes.end()) {
      refuse(node, "its attribute {} is not known", printable(a.name));
    }
  }
  (this->*row->translate)(node);
}

void OnnxImporter::finish() {
  const auto output = values_.find(graph_.outputs[0]);
  if (output == values_.end() || !output->second.of_layer() || output->second.rank != 2 || output->second.layer < 0) {
    fail(ExitCode::config, "{}: its output {} has not the shape [N,classes], or is not computed from the images", path_,
         printable(graph_.outputs[0]));
  }
  const Value logits = output->second;
  std::string classes;
  if (logits.head >= 0) {  // the last key of its line is the number of its outputs
    std::string& text = layers_[static_cast<size_t>(logits.head)].text;
    const size_t number = text.rfind("= ") + 2, digits = text.rfind(" }") - number;
    classes = fmt::format("classes = {}\n", text.substr(number, digits));
    text.replace(number, digits, "\"$classes\"");
  }
  add("loss", names_.unused("loss"), {logits});
  model_.definition = "# Of an ONNX file.\n" + classes;
  if (model_.image_size > 0) model_.definition += fmt::format("image_size = {}\n", model_.image_size);
  model_.definition += "layer = [\n";
  for (const Layer& layer : layers_) model_.definition += layer.text;
  model_.definition += "]\n";
}

// ---- reading a node

const OnnxAttribute* OnnxImporter::find(const OnnxNode& node, std::string_view name) {
  const auto found = std::ranges::find(node.attributes, name, &OnnxAttribute::name);
  return found == node.attributes.end() ? nullptr : &*found;
}

int64_t OnnxImporter::integer(const OnnxNode& node, std::string_view name, int64_t otherwise) const {
  const OnnxAttribute* attribute = find(node, name);
  return attribute ? attribute->integer : otherwise;
}

std::string OnnxImporter::number(const OnnxNode& node, std::string_view name, float otherwise) const {
  const OnnxAttribute* attribute = find(node, name);
  return fmt::format("{}", attribute ? attribute->number : otherwise);
}

void OnnxImporter::require_integer(const OnnxNode& node, std::string_view name, int64_t wanted) const {
  const int64_t value = integer(node, name, wanted);
  if (value != wanted) refuse(node, "{} = {} has no equal in a layer; only {} has", name, value, wanted);
}

bool OnnxImporter::has_input(const OnnxNode& node, size_t i) const {
  return i < node.inputs.size() && !node.inputs[i].empty();
}

const OnnxImporter::Value& OnnxImporter::input(const OnnxNode& node, size_t i) const {
  if (!has_input(node, i)) refuse(node, "it has no input {}", i);
  const auto found = values_.find(node.inputs[i]);
  if (found == values_.end()) refuse(node, "no node before it has the output {}", printable(node.inputs[i]));
  return found->second;
}

const OnnxImporter::Value& OnnxImporter::computed(const OnnxNode& node, size_t i, int rank) const {
  const Value& value = input(node, i);
  const std::string name = printable(node.inputs[i]);
  if (!value.of_layer()) refuse(node, "its input {} is not the output of a layer", name);
  if (rank != 0 && value.rank != rank) refuse(node, "its input {} has {} dimensions, not {}", name, value.rank, rank);
  return value;
}

const OnnxTensor& OnnxImporter::constant(const OnnxNode& node, size_t i) const {
  const Value& value = input(node, i);
  if (!value.tensor) refuse(node, "its input {} is computed; a constant is wanted", printable(node.inputs[i]));
  return *value.tensor;
}

const OnnxImporter::Integers& OnnxImporter::weight_shape(const OnnxNode& node, size_t i, size_t rank) const {
  const Integers& dims = constant(node, i).dims;
  constexpr int64_t kMost = int64_t{1} << 31;
  if (dims.size() != rank || std::ranges::any_of(dims, [](int64_t d) { return d < 1 || d > kMost; })) {
    refuse(node, "its weights {} have the shape [{}]; {} dimensions are wanted", printable(node.inputs[i]),
           fmt::join(dims, ","), rank);
  }
  return dims;
}

OnnxImporter::Integers OnnxImporter::integers(const OnnxNode& node, size_t i) const {
  const Value& value = input(node, i);
  if (value.integers) return *value.integers;
  return values(node, constant(node, i), onnx_integers);
}

std::vector<float> OnnxImporter::floats(const OnnxNode& node, size_t i) {
  return values(node, constant(node, i), [&](const OnnxTensor& tensor) {
    return tensor.external ? onnx_floats(tensor, external_.read(tensor)) : onnx_floats(tensor);
  });
}

// ---- translating a node

OnnxImporter::Value OnnxImporter::add(std::string_view op, const std::string& name, const std::vector<Value>& inputs,
                                      const std::string& keys) {
  const auto quoted = [&](const Value& v) {
    return fmt::format("\"{}\"", v.layer < 0 ? "images" : layers_[static_cast<size_t>(v.layer)].name);
  };
  std::string from;
  if (inputs.size() > 1) {
    for (const Value& v : inputs) from += (from.empty() ? ", inputs = [" : ", ") + quoted(v);
    from += "]";
  } else if (inputs[0].layer != static_cast<int>(layers_.size()) - 1) {
    from = ", input = " + quoted(inputs[0]);
  }
  layers_.push_back({name, fmt::format("  {{ op = \"{}\", name = \"{}\"{}{} }},\n", op, name, from, keys)});
  text_bytes_ += layers_.back().text.size();
  if (text_bytes_ > kMostText) fail(ExitCode::config, "{}: it has too many nodes", path_);
  Value output = inputs[0];
  output.layer = static_cast<int>(layers_.size()) - 1;
  return output;
}

void OnnxImporter::take(const OnnxNode& node, size_t i, const std::string& name, const Shape& shape, bool transposed) {
  const OnnxTensor& tensor = constant(node, i);
  const std::string_view what = node.inputs[i];
  if (shape.rank() > 1 && !used_.insert(&tensor).second) {
    refuse(node, "its weights {} are those of another layer; layers cannot share weights", printable(what));
  }
  std::vector<float> read = floats(node, i);
  taken_bytes_ += read.size() * sizeof(float);
  if (taken_bytes_ > kFreeBytes + 2 * (file_bytes_ + external_.opened_bytes())) {
    refuse(node, "its constants {} are used too often", printable(what));
  }
  if (static_cast<int64_t>(read.size()) != shape.elements()) {
    refuse(node, "{} has the shape [{}]; {} values are wanted", printable(what), fmt::join(tensor.dims, ","),
           shape.elements());
  }
  model_.weights.push_back({name, shape, std::move(read)});
  if (!transposed) return;
  NamedTensor& parameter = model_.weights.back();
  const auto rows = static_cast<size_t>(shape[0]), columns = static_cast<size_t>(shape[1]);
  const std::vector<float> before = parameter.values;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) parameter.values[r * columns + c] = before[c * rows + r];
  }
}

// ---- files

OnnxModel import_onnx(std::span<const std::byte> file, const std::string& name, const std::string& directory,
                      ExitCode damaged) {
  try {
    const OnnxGraph graph = parse_onnx(file);
    return OnnxImporter(graph, name, file.size(), directory, damaged).model();
  } catch (const MalformedMessage& e) {
    fail(damaged, "{}: not an ONNX file, or cut short ({})", name, e.what());
  }
}

OnnxModel read_onnx_model(const std::string& path, ExitCode damaged) {
  return import_onnx(read_regular_file(path, damaged), printable(path), parent_directory(path), damaged);
}

bool is_onnx(const std::string& path) { return path.ends_with(".onnx"); }

std::string read_definition(const std::string& path) {
  return is_onnx(path) ? read_onnx_model(path).definition : read_text_file(path, ExitCode::config);
}

}  // namespace lockstep
