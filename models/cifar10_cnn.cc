// The two-convolution network of TensorFlow's classic CIFAR-10 tutorial (Krizhevsky's cuda-convnet, local response
// normalization included), for any image size.
#include "lockstep/models/models.h"

namespace lockstep {

void build_cifar10_cnn(ModelBuilder& b) {
  constexpr Window kFive{5, 5, 1, 1, 2, 2};
  constexpr Window kPool{3, 3, 2, 2, 1, 1};
  constexpr LocalResponseNorm kNorm{.size = 9, .alpha = 0.001, .beta = 0.75, .k = 1.0};

  ValueId x = b.relu(b.conv(b.images(), "conv1", {64, kFive, true, 0.05}), "conv1.relu");
  x = b.local_response_norm(b.max_pool(x, "pool1", kPool), "norm1", kNorm);
  x = b.relu(b.conv(x, "conv2", {64, kFive, true, 0.05}), "conv2.relu");
  x = b.max_pool(b.local_response_norm(x, "norm2", kNorm), "pool2", kPool);
  x = b.flatten(x, "flatten");
  x = b.relu(b.linear(x, "fc3", {384, 0.04, 0.1}), "fc3.relu");
  x = b.relu(b.linear(x, "fc4", {192, 0.04, 0.1}), "fc4.relu");
  x = b.dropout(x, "dropout");
  b.loss(b.linear(x, "fc5", {b.options().classes, 1.0 / 192}), "loss", 1.0);
}

}  // namespace lockstep
