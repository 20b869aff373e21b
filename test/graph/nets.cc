#include "test/graph/nets.h"

#include <fmt/format.h>

#include "lockstep/base/random.h"

namespace lockstep::test {

ModelOptions small_options() {
  return {.batch_size = 3,
          .image_size = 9,
          .classes = 4,
          .aux_weight = 0.4,
          .dropout = 0.25,
          .label_smoothing = 0.1,
          .dtype = DType::f64};
}

ModelOptions float_options() {
  ModelOptions options = small_options();
  options.dtype = DType::f32;
  return options;
}

Graph small_net(const ModelOptions& options) {
  ModelBuilder b(options);
  ValueId x = b.conv_norm_relu(b.images(), "stem", {.channels = 6, .window = kThree});
  const ValueId left = b.conv_norm_relu(x, "left", {.channels = 4});
  const ValueId right = b.relu(b.conv(x, "right", {.channels = 5, .window = kThree, .bias = true}), "right.relu");
  const ValueId pooled = b.conv_norm_relu(b.avg_pool(x, "avg", kThree), "pooled", {.channels = 3});
  x = b.concat({left, right, b.max_pool(x, "max", kThree), pooled}, "cat");
  x = b.local_response_norm(x, "lrn", {.size = 5, .alpha = 0.1, .beta = 0.75, .k = 1.0});
  x = b.max_pool(x, "halve", kHalve);
  const ValueId aux = b.flatten(b.global_avg_pool(x, "aux.pool"), "aux.flatten");
  const ValueId aux_logits = b.linear(aux, "aux.fc", {.outputs = options.classes});
  x = b.batch_norm(b.conv(x, "tail", {.channels = 4, .window = {2, 2, 1, 1, 0, 0}}), "tail.bn");
  x = b.dropout(b.flatten(x, "flatten"), "dropout");
  b.loss(b.linear(b.relu(b.linear(x, "fc1", {.outputs = 7}), "fc1.relu"), "fc2", {.outputs = options.classes}), "loss",
         1.0);
  if (options.training) b.loss(aux_logits, "aux_loss", options.aux_weight);
  return std::move(b).finish();
}

Graph block_net(const ModelOptions& options) {
  ModelBuilder b(options);
  const ValueId x = b.conv_norm_relu(b.images(), "stem", {.channels = 32, .window = kThree});
  const ValueId one = b.conv_norm_relu(x, "one", {.channels = 16});
  ValueId two = b.conv_norm_relu(x, "two_1", {.channels = 32});
  two = b.concat({b.conv_norm_relu(two, "two_2a", {.channels = 16, .window = {1, 3, 1, 1, 0, 1}}),
                  b.conv_norm_relu(two, "two_2b", {.channels = 16, .window = {3, 1, 1, 1, 1, 0}})},
                 "two");
  const ValueId pooled = b.conv_norm_relu(b.avg_pool(x, "avg", kThree), "pooled", {.channels = 16});
  const ValueId y = b.concat({one, two, b.max_pool(x, "max", kThree), pooled}, "cat");
  const ValueId last = b.conv_norm_relu(y, "last", {.channels = 16, .window = kThree});
  const ValueId row = b.flatten(b.global_avg_pool(last, "avgpool"), "flatten");
  b.loss(b.linear(row, "fc", {.outputs = options.classes}), "loss", 1.0);
  return std::move(b).finish();
}

Graph strided_net(const ModelOptions& options) {
  ModelBuilder b(options);
  ValueId x = b.conv_norm_relu(b.images(), "stem", {.channels = 16, .window = {3, 3, 2, 2}});
  x = b.conv_norm_relu(x, "next", {.channels = 16, .window = kThree});
  b.loss(b.linear(b.flatten(b.global_avg_pool(x, "pool"), "flatten"), "fc", {.outputs = options.classes}), "loss", 1);
  return std::move(b).finish();
}

Graph random_net(uint64_t seed, const ModelOptions& options) {
  RandomStream random(random_key(seed));
  ModelBuilder b(options);
  std::vector<ValueId> values = {b.conv(b.images(), "first", {.channels = 4, .window = kThree})};
  std::vector<ValueId> unread = values;
  auto pick = [&] {
    const ValueId v = values[random.below(values.size())];
    std::erase(unread, v);
    return v;
  };
  for (int i = 0; i < 12; ++i) {
    const std::string name = fmt::format("n{}", i);
    ValueId y = -1;
    switch (random.below(8)) {
      case 0:
        y = b.conv_norm_relu(pick(), name, {.channels = 1 + static_cast<int64_t>(random.below(9))});
        break;
      case 1:
        y = b.conv(pick(), name,
                   {.channels = 1 + static_cast<int64_t>(random.below(9)), .window = kThree, .bias = true});
        break;
      case 2:
        y = b.batch_norm(pick(), name);
        break;
      case 3:
        y = b.relu(pick(), name);
        break;
      case 4:
        y = b.max_pool(pick(), name, kThree);
        break;
      case 5:
        y = b.avg_pool(pick(), name, kThree);
        break;
      case 6:
        y = b.concat({pick(), pick()}, name);
        break;
      default:
        y = b.dropout(b.local_response_norm(pick(), name, {}), name + ".dropout");
        break;
    }
    values.push_back(y);
    unread.push_back(y);
  }
  const ValueId all = b.concat(unread, "all");
  const ValueId logits = b.linear(b.flatten(all, "flatten"), "fc", {.outputs = options.classes});
  b.loss(logits, "loss", 1.0);
  const ValueId middle = values[values.size() / 2];
  if (options.training && options.aux_weight > 0) {
    b.loss(b.linear(b.flatten(middle, "aux.flatten"), "aux.fc", {.outputs = options.classes}), "aux_loss",
           options.aux_weight);
  }
  return std::move(b).finish();
}

const Node* find_node(const Graph& graph, const std::string& name) {
  const auto found =
      std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.name == name; });
  return found == graph.nodes.end() ? nullptr : &*found;
}

ValueId find_value(const Graph& graph, const std::string& name) {
  for (size_t v = 0; v < graph.values.size(); ++v) {
    if (graph.values[v].name == name) return static_cast<ValueId>(v);
  }
  return -1;
}

bool is_well_formed(const Graph& graph) {
  std::vector<bool> made(graph.values.size(), false);
  for (size_t v = 0; v < made.size(); ++v) made[v] = graph.values[v].role != ValueRole::computed;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (ValueId input : graph.nodes[n].inputs) {
      if (!made[static_cast<size_t>(input)]) return false;
    }
    for (ValueId output : graph.nodes[n].outputs) {
      if (made[static_cast<size_t>(output)] || graph.value(output).producer != static_cast<NodeId>(n)) return false;
      made[static_cast<size_t>(output)] = true;
    }
  }
  return true;
}

}  // namespace lockstep::test
