// Translates the nodes of one ONNX graph into the layers of a model file.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "exchange/onnx_external.h"
#include "exchange/onnx_file.h"
#include "exchange/onnx_names.h"
#include "lockstep/base/error.h"
#include "lockstep/base/printable.h"
#include "lockstep/exchange/onnx_import.h"

namespace lockstep {

// Used once, by one thread. The graph and the path must outlive it.
class OnnxImporter {
 public:
  // `file_bytes`: the size of the file, which limits how often constants can be used. `directory` is that of its other
  // files. `damaged` is the code of the error if one of those cannot be read.
  OnnxImporter(const OnnxGraph& graph, const std::string& path, size_t file_bytes, const std::string& directory,
               ExitCode damaged)
      : graph_(graph), path_(path), names_(graph), file_bytes_(file_bytes), external_(directory, damaged) {}

  OnnxModel model() &&;

 private:
  using Integers = std::vector<int64_t>;

  // The meaning of a name in the file: the output of a layer, unless one of the other members is set.
  struct Value {
    int layer = -1;  // -1: images
    int rank = 4;
    int head = -1;                          // the layer whose outputs are these, up to pooling and ReLU; -1: none
    bool pooled = false;                    // [N,C,1,1]
    const OnnxNode* product = nullptr;      // a MatMul whose bias has not been read yet
    int64_t pad_h = 0, pad_w = 0;           // zeros around it
    const OnnxTensor* tensor = nullptr;     // constants
    bool transposed = false;                // of the constants, which are a matrix
    std::optional<Integers> integers = {};  // a shape or a part of one; 0: the batch
    bool of_layer() const { return !product && pad_h == 0 && pad_w == 0 && !tensor && !integers; }
  };

  struct Layer {
    std::string name, text;
  };

  struct Operator {
    std::string_view type, attributes;  // the attributes that it supports, separated by spaces
    void (OnnxImporter::*translate)(const OnnxNode&);
  };
  static std::span<const Operator> operators();

  void read_input();
  std::set<const OnnxNode*> needed_nodes();
  void translate(const OnnxNode& node);
  void finish();

  // ---- reading a node
  template <class... Args>
  [[noreturn]] void refuse(const OnnxNode& node, fmt::format_string<Args...> format, Args&&... args) const {
    fail_at(node, ExitCode::config, fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void fail_at(const OnnxNode& node, ExitCode code, const std::string& what) const {
    const std::string_view name = node.name.empty() && !node.outputs.empty() ? node.outputs[0] : node.name;
    fail(code, "{}: node {} ({}): {}", path_, printable(name), printable(node.type), what);
  }
  static const OnnxAttribute* find(const OnnxNode& node, std::string_view name);
  int64_t integer(const OnnxNode& node, std::string_view name, int64_t otherwise) const;
  // Formats a number for a model file: the shortest decimal number that equals it in 32 bits.
  std::string number(const OnnxNode& node, std::string_view name, float otherwise) const;
  void require_integer(const OnnxNode& node, std::string_view name, int64_t wanted) const;
  bool has_input(const OnnxNode& node, size_t i) const;
  const Value& input(const OnnxNode& node, size_t i) const;
  // The output of a layer. `rank`: its dimensions; 0: any.
  const Value& computed(const OnnxNode& node, size_t i, int rank = 0) const;
  const OnnxTensor& constant(const OnnxNode& node, size_t i) const;
  // The shape of weights, which must have this rank.
  const Integers& weight_shape(const OnnxNode& node, size_t i, size_t rank) const;
  // A shape or a list of axes: constants, or the known extents of a layer's output.
  Integers integers(const OnnxNode& node, size_t i) const;
  std::vector<float> floats(const OnnxNode& node, size_t i);
  // Calls get(constant); its exceptions become errors of the node.
  template <class Get>
  auto values(const OnnxNode& node, const OnnxTensor& tensor, const Get& get) const {
    try {
      return get(tensor);
    } catch (const Error& e) {
      fail_at(node, e.code(), e.what());
    }
  }

  // ---- translating a node
  // The keys of a window that differ from their defaults.
  std::string window(const OnnxNode& node, const Value& x, const Integers& kernel) const;
  Value add(std::string_view op, const std::string& name, const std::vector<Value>& inputs,
            const std::string& keys = {});
  void set(const OnnxNode& node, Value value) { values_[node.outputs[0]] = std::move(value); }
  void set_flat(const OnnxNode& node, const Value& x);  // to x as [N,C*H*W]
  // Makes input `i` the parameter `name`, with `shape`, or [columns, rows] if it has to be transposed.
  void take(const OnnxNode& node, size_t i, const std::string& name, const Shape& shape, bool transposed = false);
  void take_linear(const OnnxNode& product, const Value& x, const OnnxNode& last, std::optional<size_t> bias,
                   bool transposed);

  void add_or_bias(const OnnxNode& node);
  void average_pool(const OnnxNode& node);
  void batch_normalization(const OnnxNode& node);
  void clip(const OnnxNode& node);
  void concat(const OnnxNode& node);
  void constant_node(const OnnxNode& node);
  void conv(const OnnxNode& node);
  void dropout(const OnnxNode& node);
  void flatten(const OnnxNode& node);
  void gather(const OnnxNode& node);
  void gemm(const OnnxNode& node);
  void global_average_pool(const OnnxNode& node);
  void identity(const OnnxNode& node);
  void lrn(const OnnxNode& node);
  void mat_mul(const OnnxNode& node);
  void max_pool(const OnnxNode& node);
  void pad(const OnnxNode& node);
  void reduce_mean(const OnnxNode& node);
  void relu(const OnnxNode& node);
  void reshape(const OnnxNode& node);
  void shape_of(const OnnxNode& node);
  void softmax(const OnnxNode& node);
  void squeeze(const OnnxNode& node);
  void transpose(const OnnxNode& node);
  void unsqueeze(const OnnxNode& node);

  const OnnxGraph& graph_;
  const std::string& path_;
  OnnxNames names_;
  size_t file_bytes_;
  OnnxExternal external_;
  size_t taken_bytes_ = 0;
  std::map<std::string_view, Value> values_;
  std::map<std::string_view, std::vector<const OnnxNode*>> readers_;  // that are needed, of each value
  std::set<const OnnxTensor*> used_;                                  // weights
  std::deque<OnnxTensor> constants_;                                  // of nodes
  std::vector<Layer> layers_;
  size_t text_bytes_ = 0;
  OnnxModel model_;
};

}  // namespace lockstep
