// Chooses names of layers for the nodes of an ONNX graph.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "exchange/onnx_file.h"

namespace lockstep {

// Gives each layer a unique name. Names of weights have priority: no other layer gets theirs. Used by one thread.
class OnnxNames {
 public:
  explicit OnnxNames(const OnnxGraph& graph);
  // `weight`: the name of the node's weights, or empty. "layer1.0.conv1.weight" becomes layer1.0.conv1, as does the
  // node "/layer1/layer1.0/conv1/Conv", which is how PyTorch writes the module that the node belongs to.
  std::string layer(const OnnxNode& node, std::string_view weight = {});
  // Returns `name`, with a number appended if it is taken.
  std::string unused(const std::string& name);

 private:
  std::set<std::string> of_weights_;  // not used yet
  std::map<std::string, int> taken_;  // and how often it was asked for
};

}  // namespace lockstep
