// A whole network on the CUDA backend's kernels, compiled as for a GPU: slices, merged siblings, forward and backward.
#include "test/graph/nets.h"
#include "lockstep/base/random.h"
#include "test/catch.h"
#include "test/graph/net.h"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("a network whose batch norms read and write slices computes what the reference backend computes") {
  const auto cuda = make_backend("cuda", {});
  const auto reference = make_backend("reference", {});
  Net views(*cuda, block_net(float_options()), {});
  REQUIRE(matches_of(views.executable(), "alias_concat") > 10);
  Net plain(*cuda, block_net(float_options()), {.rewrites = false});
  Net exact(*reference, block_net(small_options()), {.rewrites = false});
  CHECK(worst_error(plain, exact) < 1e-4);
  CHECK(worst_error(views, exact) < 1e-4);
}

TEST_CASE("a network whose scales are fixed computes what the reference backend computes") {
  const auto cuda = make_backend("cuda", {});
  const auto reference = make_backend("reference", {});
  ModelOptions options = float_options(), exact_options = small_options();
  options.bn_scale = exact_options.bn_scale = false;
  Net summed(*cuda, block_net(options), {});
  CHECK(matches_of(summed.executable(), "sum_normalized") > 0);
  Net exact(*reference, block_net(exact_options), {.rewrites = false});
  CHECK(worst_error(summed, exact) < 1e-4);
}

TEST_CASE("in 16 bits the first layer, padded to four channels, computes what the reference backend computes") {
  const DType compute = GENERATE(DType::bf16, DType::f16);
  const auto cuda = make_backend("cuda", {});
  const auto reference = make_backend("reference", {});
  Net low(*cuda, block_net(float_options()), {.compute = compute});
  int padded = 0;
  for (const Value& value : low.executable().graph().values) {
    if (value.desc.format.kind != Format::Kind::opaque) continue;
    const Shape& s = value.desc.shape;
    CHECK(s.c() == 3);
    CHECK(cuda->storage_bytes(value.desc) == static_cast<size_t>(s.elements() / 3 * 4) * sizeof(uint16_t));
    ++padded;
  }
  CHECK(padded >= 3);  // the images, the weights, their gradient
  Net exact(*reference, block_net(small_options()), {.rewrites = false});
  CHECK(worst_error(low, exact) < (compute == DType::bf16 ? 0.2 : 0.1));
}

TEST_CASE("in 16 bits a first layer with stride 2 reads pairs of pixels") {
  const DType compute = GENERATE(DType::bf16, DType::f16);
  const bool from_bytes = GENERATE(false, true);
  const auto cuda = make_backend("cuda", {});
  const auto reference = make_backend("reference", {});
  CompileOptions options, low_options{.compute = compute};
  if (from_bytes) {
    options.pixels = low_options.pixels =
        PreparePixels{.scale = {0.01F, 0.02F, 0.01F}, .shift = {-1, -2, -1}, .changes = true};
  }
  Net low(*cuda, strided_net(float_options()), low_options), exact(*reference, strided_net(float_options()), options);
  int paired = 0;
  for (const Value& value : low.graph().values) {
    if (value.desc.format.kind != Format::Kind::opaque) continue;
    const Shape& s = value.desc.shape;
    CHECK(cuda->storage_bytes(value.desc) == static_cast<size_t>(s.n() * s.h() * (s.w() + 1) / 2 * 8) * 2);
    ++paired;
  }
  CHECK(paired == 3);  // the images, the weights, their gradient: nothing is reordered
  for (Net* net : {&low, &exact}) {
    net->fill_at_random(7);
    RandomStream random(random_key(7));
    std::vector<double> pixels(3 * 9 * 9 * 3);
    for (double& pixel : pixels) pixel = static_cast<double>(random.below(256));
    net->set(ExternalInput::pixels, pixels);
    net->forward();
    net->backward();
  }
  const ValueId logits = low.graph().losses[0].logits, expected = exact.graph().losses[0].logits;
  CHECK(relative_error(low.value(logits), exact.value(expected)) < (compute == DType::bf16 ? 0.1 : 0.01));
  CHECK(worst_gradient_error(low, exact) < (compute == DType::bf16 ? 0.2 : 0.1));
}
