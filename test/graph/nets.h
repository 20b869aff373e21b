// Graphs that the tests of the graph layer share.
#pragma once

#include <algorithm>
#include <string>

#include "lockstep/graph/model_builder.h"

namespace lockstep::test {

inline constexpr Window kThree{3, 3, 1, 1, 1, 1};  // 3x3, same size
inline constexpr Window kHalve{3, 3, 2, 2, 1, 1};

// Images [3,3,9,9], 4 classes, dropout, float64.
ModelOptions small_options();
// The same in float32.
ModelOptions float_options();

// Every kind of layer at least once, two loss heads.
Graph small_net(const ModelOptions& options);

// An Inception block in small: siblings of 16, 32 and 16 channels, one of them behind an average pool, a concatenation
// in a concatenation, a pool beside. Parameters have torchvision's kind of names.
Graph block_net(const ModelOptions& options);

// Two convolutions, the first of stride 2, which in 16 bits a GPU computes of pairs of pixels; their rows are odd.
Graph strided_net(const ModelOptions& options);

// A random net of about a dozen layers: values are read any number of times, and what nobody reads is concatenated
// before the loss, so that every parameter matters.
Graph random_net(uint64_t seed, const ModelOptions& options);

const Node* find_node(const Graph& graph, const std::string& name);  // null: none
ValueId find_value(const Graph& graph, const std::string& name);     // -1: none

// Whether each value is made once, by the node that its producer names, before it is read.
bool is_well_formed(const Graph& graph);

template <class OpType>
int count_nodes(const Graph& graph) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                        [](const Node& n) { return std::holds_alternative<OpType>(n.op); }));
}

}  // namespace lockstep::test
