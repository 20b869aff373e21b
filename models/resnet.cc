// ResNets (He et al. 2015, "Deep Residual Learning for Image Recognition") in torchvision's structure and with its
// parameter names: "version 1.5", where the 3x3 convolution of a bottleneck has the stride (Goyal et al. 2017).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/models/models.h"

namespace lockstep {
namespace {

constexpr int64_t kExpansion = 4;  // a bottleneck's output channels over its inner ones

struct Network {
  int depth;
  bool bottlenecks;
  std::array<int, 4> blocks;  // of each stage
};
constexpr Network kNetworks[] = {{18, false, {2, 2, 2, 2}},
                                 {34, false, {3, 4, 6, 3}},
                                 {50, true, {3, 4, 6, 3}},
                                 {101, true, {3, 4, 23, 3}},
                                 {152, true, {3, 8, 36, 3}}};

Window square(int64_t kernel, int64_t stride = 1, int64_t pad = 0) {
  return {kernel, kernel, stride, stride, pad, pad};
}

// He et al. 2015, "Delving Deep into Rectifiers": scaled by the number of outputs, like torchvision's initial weights.
ModelBuilder::Conv convolution(int64_t channels, const Window& window) {
  const auto fan_out = static_cast<double>(channels * window.kernel_h * window.kernel_w);
  return {.channels = channels, .window = window, .deviation = std::sqrt(2 / fan_out)};
}

// One block: its builder, the prefix of its names, its inner channels, and the stride of its first 3x3 convolution.
struct Block {
  ModelBuilder& b;
  std::string name;
  int64_t inner, stride;

  ValueId conv_norm(ValueId x, int number, int64_t channels, const Window& window) const {
    x = b.conv(x, fmt::format("{}.conv{}", name, number), convolution(channels, window));
    return b.batch_norm(x, fmt::format("{}.bn{}", name, number));
  }
  ValueId relu(ValueId x, int number) const { return b.relu(x, fmt::format("{}.relu{}", name, number)); }

  // Two 3x3 convolutions.
  ValueId basic(ValueId x) const {
    x = relu(conv_norm(x, 1, inner, square(3, stride, 1)), 1);
    return conv_norm(x, 2, inner, square(3, 1, 1));
  }
  // A 1x1 convolution to few channels, a 3x3 one, and a 1x1 one to many.
  ValueId bottleneck(ValueId x) const {
    x = relu(conv_norm(x, 1, inner, square(1)), 1);
    x = relu(conv_norm(x, 2, inner, square(3, stride, 1)), 2);
    return conv_norm(x, 3, kExpansion * inner, square(1));
  }
  // Adds one of these to the input, or to its strided 1x1 convolution ("downsample") if the shapes differ.
  ValueId residual(ValueId x, bool bottlenecks) const {
    const ValueId y = bottlenecks ? bottleneck(x) : basic(x);
    const int64_t outer = b.shape(y).c();
    if (stride != 1 || b.shape(x).c() != outer) {
      x = b.conv(x, name + ".downsample.0", convolution(outer, square(1, stride)));
      x = b.batch_norm(x, name + ".downsample.1");
    }
    return relu(b.add(y, x, name + ".add"), bottlenecks ? 3 : 2);
  }
};

}  // namespace

void build_resnet(ModelBuilder& b, int depth) {
  const auto* const network = std::ranges::find(kNetworks, depth, &Network::depth);
  require(network != std::end(kNetworks), "there is no ResNet of {} layers", depth);
  ValueId x = b.conv(b.images(), "conv1", convolution(64, square(7, 2, 3)));
  x = b.max_pool(b.relu(b.batch_norm(x, "bn1"), "relu"), "maxpool", square(3, 2, 1));
  for (int stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < network->blocks[static_cast<size_t>(stage)]; ++i) {
      const Block block{b, fmt::format("layer{}.{}", stage + 1, i), 64 << stage, stage > 0 && i == 0 ? 2 : 1};
      x = block.residual(x, network->bottlenecks);
    }
  }
  x = b.dropout(b.flatten(b.global_avg_pool(x, "avgpool"), "flatten"), "dropout");
  b.loss(b.linear(x, "fc", {.outputs = b.options().classes, .deviation = 0.01}), "loss", 1.0);
}

}  // namespace lockstep
