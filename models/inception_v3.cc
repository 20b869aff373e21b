// Inception-v3 (Szegedy et al. 2015, "Rethinking the Inception Architecture for Computer Vision"), in torchvision's
// structure and with its parameter names.
#include "lockstep/base/error.h"
#include "lockstep/models/models.h"

namespace lockstep {
namespace {

constexpr int64_t kSmallestImage = 75;      // below it the last grid is empty
constexpr int64_t kSmallestAuxImage = 299;  // below it, the input of the auxiliary head's 5x5 convolution is too small

Window square(int64_t kernel, int64_t stride = 1, int64_t pad = 0) {
  return {kernel, kernel, stride, stride, pad, pad};
}
// Windows of 1xk and kx1 with stride 1, which keep the size of the image.
Window row(int64_t k) { return {.kernel_h = 1, .kernel_w = k, .pad_w = k / 2}; }
Window column(int64_t k) { return {.kernel_h = k, .kernel_w = 1, .pad_h = k / 2}; }

// One block: its builder and the prefix of its names.
struct Block {
  ModelBuilder& b;
  std::string name;

  ValueId conv(ValueId x, const std::string& branch, int64_t channels, const Window& window = {}) const {
    return b.conv_norm_relu(x, name + "." + branch, {.channels = channels, .window = window});
  }
  ValueId pool_branch(ValueId x, int64_t channels) const {
    return conv(b.avg_pool(x, name + ".avg_pool", square(3, 1, 1)), "branch_pool", channels);
  }
  ValueId max_pool_branch(ValueId x, int64_t channels) const {
    return conv(b.max_pool(x, name + ".max_pool", square(3, 1, 1)), "branch_pool", channels);
  }
  ValueId concat(const std::vector<ValueId>& members, const std::string& what = "cat") const {
    return b.concat(members, name + "." + what);
  }
};

ValueId inception_a(const Block& n, ValueId x, int64_t pool_channels) {
  const ValueId b1 = n.conv(x, "branch1x1", 64);
  const ValueId b5 = n.conv(n.conv(x, "branch5x5_1", 48), "branch5x5_2", 64, square(5, 1, 2));
  ValueId b3 = n.conv(x, "branch3x3dbl_1", 64);
  b3 = n.conv(b3, "branch3x3dbl_2", 96, square(3, 1, 1));
  b3 = n.conv(b3, "branch3x3dbl_3", 96, square(3, 1, 1));
  return n.concat({b1, b5, b3, n.pool_branch(x, pool_channels)});
}

ValueId inception_b(const Block& n, ValueId x) {
  const ValueId b3 = n.conv(x, "branch3x3", 384, square(3, 2));
  ValueId b3dbl = n.conv(x, "branch3x3dbl_1", 64);
  b3dbl = n.conv(b3dbl, "branch3x3dbl_2", 96, square(3, 1, 1));
  b3dbl = n.conv(b3dbl, "branch3x3dbl_3", 96, square(3, 2));
  return n.concat({b3, b3dbl, n.b.max_pool(x, n.name + ".max_pool", square(3, 2))});
}

ValueId inception_c(const Block& n, ValueId x, int64_t inner) {
  const ValueId b1 = n.conv(x, "branch1x1", 192);
  ValueId b7 = n.conv(x, "branch7x7_1", inner);
  b7 = n.conv(b7, "branch7x7_2", inner, row(7));
  b7 = n.conv(b7, "branch7x7_3", 192, column(7));
  ValueId b7dbl = n.conv(x, "branch7x7dbl_1", inner);
  b7dbl = n.conv(b7dbl, "branch7x7dbl_2", inner, column(7));
  b7dbl = n.conv(b7dbl, "branch7x7dbl_3", inner, row(7));
  b7dbl = n.conv(b7dbl, "branch7x7dbl_4", inner, column(7));
  b7dbl = n.conv(b7dbl, "branch7x7dbl_5", 192, row(7));
  return n.concat({b1, b7, b7dbl, n.pool_branch(x, 192)});
}

ValueId inception_d(const Block& n, ValueId x) {
  const ValueId b3 = n.conv(n.conv(x, "branch3x3_1", 192), "branch3x3_2", 320, square(3, 2));
  ValueId b7 = n.conv(x, "branch7x7x3_1", 192);
  b7 = n.conv(b7, "branch7x7x3_2", 192, row(7));
  b7 = n.conv(b7, "branch7x7x3_3", 192, column(7));
  b7 = n.conv(b7, "branch7x7x3_4", 192, square(3, 2));
  return n.concat({b3, b7, n.b.max_pool(x, n.name + ".max_pool", square(3, 2))});
}

ValueId inception_e(const Block& n, ValueId x, bool max_pool = false) {
  const ValueId b1 = n.conv(x, "branch1x1", 320);
  ValueId b3 = n.conv(x, "branch3x3_1", 384);
  b3 = n.concat({n.conv(b3, "branch3x3_2a", 384, row(3)), n.conv(b3, "branch3x3_2b", 384, column(3))}, "branch3x3");
  ValueId dbl = n.conv(n.conv(x, "branch3x3dbl_1", 448), "branch3x3dbl_2", 384, square(3, 1, 1));
  dbl = n.concat({n.conv(dbl, "branch3x3dbl_3a", 384, row(3)), n.conv(dbl, "branch3x3dbl_3b", 384, column(3))},
                 "branch3x3dbl");
  return n.concat({b1, b3, dbl, max_pool ? n.max_pool_branch(x, 192) : n.pool_branch(x, 192)});
}

ValueId stem(ModelBuilder& b) {
  auto conv = [&](ValueId x, const std::string& name, int64_t channels, const Window& window) {
    return b.conv_norm_relu(x, name, {.channels = channels, .window = window});
  };
  ValueId x = conv(b.images(), "Conv2d_1a_3x3", 32, square(3, 2));
  x = conv(x, "Conv2d_2a_3x3", 32, square(3));
  x = conv(x, "Conv2d_2b_3x3", 64, square(3, 1, 1));
  x = b.max_pool(x, "maxpool1", square(3, 2));
  x = conv(x, "Conv2d_3b_1x1", 80, {});
  x = conv(x, "Conv2d_4a_3x3", 192, square(3));
  return b.max_pool(x, "maxpool2", square(3, 2));
}

ValueId auxiliary_logits(ModelBuilder& b, ValueId x) {
  x = b.avg_pool(x, "AuxLogits.avg_pool", square(5, 3));
  x = b.conv_norm_relu(x, "AuxLogits.conv0", {.channels = 128});
  x = b.conv_norm_relu(x, "AuxLogits.conv1", {.channels = 768, .window = square(5), .deviation = 0.01});
  x = b.flatten(b.global_avg_pool(x, "AuxLogits.pool"), "AuxLogits.flatten");
  return b.linear(x, "AuxLogits.fc", {.outputs = b.options().classes, .deviation = 0.001});
}

}  // namespace

void build_inception_v3(ModelBuilder& b) {
  const ModelOptions& o = b.options();
  if (o.image_size < kSmallestImage) {
    fail(ExitCode::config, "model.image_size = {} is too small for inception_v3: it needs {} pixels or more",
         o.image_size, kSmallestImage);
  }
  const bool aux = o.training && o.aux_weight > 0;
  if (aux && o.image_size < kSmallestAuxImage) {
    fail(ExitCode::config,
         "model.image_size = {} is too small for the auxiliary head of inception_v3, which needs {} pixels or more: "
         "set model.aux_weight = 0 to leave the head out",
         o.image_size, kSmallestAuxImage);
  }
  ValueId x = stem(b);
  x = inception_a({b, "Mixed_5b"}, x, 32);
  x = inception_a({b, "Mixed_5c"}, x, 64);
  x = inception_a({b, "Mixed_5d"}, x, 64);
  x = inception_b({b, "Mixed_6a"}, x);
  x = inception_c({b, "Mixed_6b"}, x, 128);
  x = inception_c({b, "Mixed_6c"}, x, 160);
  x = inception_c({b, "Mixed_6d"}, x, 160);
  x = inception_c({b, "Mixed_6e"}, x, 192);
  const ValueId aux_logits = aux ? auxiliary_logits(b, x) : -1;
  x = inception_d({b, "Mixed_7a"}, x);
  x = inception_e({b, "Mixed_7b"}, x);
  x = inception_e({b, "Mixed_7c"}, x, o.mixed_7c_max_pool);
  x = b.dropout(b.global_avg_pool(x, "avgpool"), "dropout");
  b.loss(b.linear(b.flatten(x, "flatten"), "fc", {.outputs = o.classes}), "loss", 1.0);
  if (aux) b.loss(aux_logits, "aux_loss", o.aux_weight);
}

}  // namespace lockstep
