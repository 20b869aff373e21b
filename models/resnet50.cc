// ResNet-50 (He et al. 2015, "Deep Residual Learning for Image Recognition") in torchvision's structure and with its
// parameter names: "version 1.5", where the 3x3 convolution of a block has the stride (Goyal et al. 2017).
#include <fmt/format.h>

#include <cmath>

#include "lockstep/models/models.h"

namespace lockstep {
namespace {

constexpr int64_t kExpansion = 4;  // a block's output channels over its inner ones

Window square(int64_t kernel, int64_t stride = 1, int64_t pad = 0) {
  return {kernel, kernel, stride, stride, pad, pad};
}

// He et al. 2015, "Delving Deep into Rectifiers": by the number of outputs, as torchvision starts them.
ModelBuilder::Conv convolution(int64_t channels, const Window& window) {
  const auto fan_out = static_cast<double>(channels * window.kernel_h * window.kernel_w);
  return {.channels = channels, .window = window, .deviation = std::sqrt(2 / fan_out)};
}

struct Stage {
  const char* name;
  int blocks;
  int64_t inner_channels;
  int64_t stride;  // of its first block
};
constexpr Stage kStages[] = {{"layer1", 3, 64, 1}, {"layer2", 4, 128, 2}, {"layer3", 6, 256, 2}, {"layer4", 3, 512, 2}};

// 1x1 to few channels, 3x3, 1x1 to many, added to the input, which a strided 1x1 ("downsample") fits where its shape
// differs.
ValueId bottleneck(ModelBuilder& b, ValueId x, const std::string& name, const Stage& stage, int64_t stride) {
  const auto conv_norm = [&](ValueId in, const std::string& number, int64_t channels, const Window& window) {
    return b.batch_norm(b.conv(in, name + ".conv" + number, convolution(channels, window)), name + ".bn" + number);
  };
  const int64_t inner = stage.inner_channels, outer = kExpansion * inner;
  ValueId y = b.relu(conv_norm(x, "1", inner, square(1)), name + ".relu1");
  y = b.relu(conv_norm(y, "2", inner, square(3, stride, 1)), name + ".relu2");
  y = conv_norm(y, "3", outer, square(1));
  if (stride != 1 || b.shape(x).c() != outer) {
    x = b.batch_norm(b.conv(x, name + ".downsample.0", convolution(outer, square(1, stride))), name + ".downsample.1");
  }
  return b.relu(b.add(y, x, name + ".add"), name + ".relu3");
}

}  // namespace

void build_resnet50(ModelBuilder& b) {
  ValueId x = b.conv(b.images(), "conv1", convolution(64, square(7, 2, 3)));
  x = b.max_pool(b.relu(b.batch_norm(x, "bn1"), "relu"), "maxpool", square(3, 2, 1));
  for (const Stage& stage : kStages) {
    for (int i = 0; i < stage.blocks; ++i) {
      x = bottleneck(b, x, fmt::format("{}.{}", stage.name, i), stage, i == 0 ? stage.stride : 1);
    }
  }
  x = b.dropout(b.flatten(b.global_avg_pool(x, "avgpool"), "flatten"), "dropout");
  b.loss(b.linear(x, "fc", {.outputs = b.options().classes, .deviation = 0.01}), "loss", 1.0);
}

}  // namespace lockstep
