// The loader's work divided between the CPU and a device: the reference backend stands for the device.
#include <array>
#include <cmath>

#include "data/image/color_distortion.h"
#include "lockstep/data/source/formats.h"
#include "lockstep/train/batch_upload.h"
#include "test/catch.h"
#include "test/train/small_run.h"

using namespace lockstep;

namespace {

// What the device makes of the bytes of one image, [3,S,S].
std::vector<float> on_device(const PreparePixels& part, int64_t size, std::span<const uint8_t> pixels,
                             const ImageChanges& changes) {
  const auto backend = make_backend("reference", {});
  const auto stream = backend->make_stream();
  std::vector<TensorDesc> in{{{1, size, size, 3}, DType::u8, {}}};
  if (part.changes) in.push_back({{1, kImageChanges}, DType::f32, {}});
  std::vector<float> image(static_cast<size_t>(3 * size * size));
  void* const inputs[] = {const_cast<uint8_t*>(pixels.data()), const_cast<ImageChanges*>(&changes)};
  void* const outputs[] = {image.data()};
  backend->compile(part, in, infer(part, in))->run({*stream, std::span(inputs).first(in.size()), outputs});
  return image;
}

float worst_difference(std::span<const float> a, std::span<const float> b) {
  float worst = 0;
  for (size_t i = 0; i < b.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

std::unique_ptr<Backend> device() { return make_deferred_backend(make_backend("reference", {})); }

}  // namespace

// With e the error of a value of 0..1, at most 0.5 of 255: a contrast factor f up to 1.5 makes it |f| e + |1 - f| e, at
// most 2 e. A color after changes of saturation and hue is value - s (k range + d), where value and range differ by up
// to e and 2 e, the difference d of two channels by 2 e, s is up to 1.5, and |k| up to 2: at most 10 e. Normalization
// multiplies by its scale.
TEST_CASE("bytes, and what a device does with them, are the loader's images but for rounding") {
  RandomStream random(1);
  constexpr int64_t kSize = 16;
  for (int i = 0; i < 600; ++i) {
    const TransformOptions options{
        .augment = std::array{Augment::none, Augment::crop_flip, Augment::torchvision, Augment::inception}[i % 4],
        .normalize = std::array{Normalize::none, Normalize::inception, Normalize::torchvision}[i % 3],
        .transform_input = i % 5 == 0,
        .image_size = kSize,
        .training = i % 7 != 0};
    ImageView view{.channels = i % 11 == 0 ? 1 : 3,
                   .height = 1 + static_cast<int64_t>(random.below(60)),
                   .width = 1 + static_cast<int64_t>(random.below(60)),
                   .layout = i % 2 == 0 ? ImageView::Layout::planar : ImageView::Layout::interleaved};
    std::vector<uint8_t> picture(static_cast<size_t>(view.channels * view.height * view.width));
    for (uint8_t& byte : picture) byte = static_cast<uint8_t>(random.below(256));
    view.u8 = picture.data();
    const Transform transform(options);
    const SampleRef sample{.epoch = 1, .index = i};
    TransformScratch scratch;
    std::vector<float> expected(3 * kSize * kSize);
    transform.apply(view, sample, scratch, expected.data());
    std::vector<uint8_t> bytes(expected.size());
    ImageChanges changes;
    transform.apply(view, sample, scratch, bytes.data(), changes);
    const PreparePixels part = transform.device_part();
    const float rounded = part.distort ? 20 * 0.5F / 255 : 0.5F;
    const float allowed = *std::ranges::max_element(part.scale) * rounded + 1e-4F * part.scale[0];
    REQUIRE(worst_difference(on_device(part, kSize, bytes, changes), expected) <= allowed);
  }
}

TEST_CASE("a device changes colors as the loader does, in both orders") {
  RandomStream random(2);
  constexpr int64_t kSize = 12, kPixels = kSize * kSize;
  bool first[2] = {};
  for (int i = 0; i < 50; ++i) {
    std::vector<uint8_t> bytes(3 * kPixels);
    std::vector<float> expected(bytes.size());
    for (int64_t p = 0; p < 3 * kPixels; ++p) {
      bytes[p] = static_cast<uint8_t>(p / 3 % 5 == 0 ? 40 * (p / 15 % 6) : random.below(256));
      expected[p % 3 * kPixels + p / 3] = static_cast<float>(bytes[p]) / 255;
    }
    const ColorDistortion color = draw_color_distortion(random);
    first[color.contrast_first != 0] = true;
    distort_color(color, expected.data(), kPixels);
    const std::vector<float> made = on_device({.changes = true, .distort = true}, kSize, bytes, {.color = color});
    REQUIRE(worst_difference(made, expected) < 2e-5F);
  }
  CHECK((first[0] && first[1]));
}

TEST_CASE("a model on a device takes bytes, except of files that may hold floats") {
  const auto takes = [](Config config, const Backend& backend) {
    const auto stream = backend.make_stream();
    return CompiledModel(config, {2, 2}, Purpose::train, backend, *stream).takes_pixels();
  };
  Config config = small_config();
  CHECK(takes(config, *device()));
  CHECK_FALSE(takes(config, *make_backend("reference", {})));
  CHECK_FALSE(takes(config, *make_deferred_backend(make_backend("cpu", {.threads = 1}))));  // it has no such operation
  config.data.format = "hdf5";
  CHECK_FALSE(takes(config, *device()));
  config = small_config();
  config.model.name = "wide_mlp";
  config.model.classes = 2;
  config.model.hidden = {4};
  config.model.vocabulary = 50;
  config.model.max_ids = 6;
  CHECK_FALSE(takes(config, *device()));
}

TEST_CASE("an evaluation on bytes gives the logits of one on images") {
  Config config = small_config();
  config.data.normalize = "torchvision";
  const auto data =
      open_data_source({.format = "synthetic", .labels = {.classes = 3}, .synthetic = {.samples = 8, .image_size = 8}});
  const auto logits = [&](const Backend& backend) {
    const auto stream = backend.make_stream();
    const CompiledModel model(config, {4, 4}, Purpose::evaluate, backend, *stream);
    for (ParameterId id = 0; id < std::ssize(model.parameters().all()); ++id) {
      const std::span<float> values = model.parameter(id);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random_unit_double(1, i)) / 32;
    }
    Loader loader(*data, {.training = false,
                          .batch_size = 4,
                          .image_size = 8,
                          .normalize = Normalize::torchvision,
                          .pixels = model.takes_pixels(),
                          .allocate = pinned_memory(backend)});
    BatchUpload upload(backend, loader.options());
    Arenas arenas = model.evaluation_arenas(Weights::raw);
    arenas.external = upload.place(*stream, upload.next(loader));
    CHECK((arenas.external.pixels != nullptr) == model.takes_pixels());
    CHECK((arenas.external.images != nullptr) == !model.takes_pixels());
    model.evaluation().forward(*stream, arenas);
    const ValueId id = model.evaluation().graph().losses.front().logits;
    const Buffer read = backend.allocate_pinned(4 * 3 * sizeof(float));
    backend.copy(*stream, read.data(), model.evaluation().address(id, arenas), read.bytes());
    stream->wait();
    return std::vector<float>(read.as<float>(), read.as<float>() + 12);
  };
  const std::vector<float> expected = logits(*make_backend("reference", {}));
  CHECK(worst_difference(expected, std::vector<float>(12)) > 0.01F);
  CHECK(worst_difference(logits(*device()), expected) < 1e-5F);
}
