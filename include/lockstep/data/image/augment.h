// From a decoded image to the model's input: crop, resize, flip, color, normalize.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/image/decode.h"
#include "lockstep/data/sampler.h"
#include "lockstep/ops/operations.h"
#include "lockstep/ops/pixels.h"

namespace lockstep {

// The training augmentation and the evaluation crop that belongs to it. S is the model's image size.
enum class Augment : uint8_t {
  none,         // training and evaluation: the whole image, resized to S x S
  crop_flip,    // training: short side to S, pad S/8 of black on all sides, random S x S crop, random flip;
                // evaluation: short side to S, central crop. For 32 x 32 images this is the usual CIFAR-10 recipe.
  torchvision,  // training: random area 0.08-1 and aspect 3/4-4/3, random flip;
                // evaluation: short side to 8/7 S (342 for 299, 256 for 224), central crop
  inception,    // training: random area 0.05-1 and aspect 0.75-1.33, random flip, brightness, contrast, saturation
                // and hue in one of two orders; evaluation: central 87.5 % of each side, resized
};

// How pixels become numbers. Stored 8-bit pixels count as 0..255 and float pixels as 0..1 of full intensity.
enum class Normalize : uint8_t {
  none,         // the stored numbers: 0..255 for 8-bit data, float data unchanged
  inception,    // full range to [-1, 1]
  torchvision,  // minus ImageNet's mean, divided by its deviation, per channel
};

// Parses a word of the configuration; nullopt for any other text.
std::optional<Augment> parse_augment(std::string_view name);
std::optional<Normalize> parse_normalize(std::string_view name);

// Returns the evaluation crop in words, for programs that run an exported model: "short side to 256, central crop of
// 224 x 224".
std::string evaluation_crop_text(Augment augment, int64_t size);

// Pixels of one image, owned by the caller. One channel counts as three equal ones.
struct ImageView {
  enum class Layout : uint8_t { interleaved, planar };  // [H,W,C] or [C,H,W]

  const uint8_t* u8 = nullptr;  // exactly one of the two
  const float* f32 = nullptr;
  int64_t channels = 3;  // 1 or 3
  int64_t height = 0;    // of the whole picture
  int64_t width = 0;
  Layout layout = Layout::interleaved;
  ImageWindow window = {};  // the part whose pixels these are; empty: all
};

struct TransformOptions {
  Augment augment = Augment::none;
  Normalize normalize = Normalize::inception;
  // After Normalize::torchvision: maps the result to [-1, 1], as torchvision's Inception-v3 does with transform_input.
  bool transform_input = false;
  int64_t image_size = 0;
  uint64_t seed = 1;
  bool training = true;
  bool jpeg_scaling = false;  // in training: source_window() may request a smaller picture if the crop is large
};

// A worker thread's own buffers, kept between images.
struct TransformScratch {
  struct Axis {
    std::vector<int64_t> begin;   // first source element of each output element
    std::vector<int64_t> offset;  // where its weights start; one more entry than outputs
    std::vector<float> weights;
  };
  Axis rows;
  Axis columns;
  std::vector<float> line;
};

// Stateless after construction; thread-safe. Augmentation is a pure function of (seed, epoch, data-set index). Resizing
// is bilinear; when it shrinks, the triangle widens with the scale (no aliasing).
class Transform {
 public:
  explicit Transform(const TransformOptions& options);

  // Returns the part of a picture of this size that apply() reads for the sample; with jpeg_scaling, maybe at a smaller
  // size.
  ImageWindow source_window(int64_t height, int64_t width, SampleRef sample) const;

  // Writes [3,S,S] to `output`. Images may have any size from 1 x 1.
  void apply(const ImageView& image, SampleRef sample, TransformScratch& scratch, float* output) const;

  // The CPU's part of the same work if a device does the rest: crops and resizes an image of bytes, rounds, and writes
  // [S,S,3]. device_part() with `changes` then computes what apply() above writes, up to the rounding (at most 0.5 of
  // 255), which color distortion can amplify.
  void apply(const ImageView& image, SampleRef sample, TransformScratch& scratch, uint8_t* output,
             ImageChanges& changes) const;
  PreparePixels device_part() const;

 private:
  struct Planned;
  bool distorts() const;
  Planned plan(int64_t height, int64_t width, SampleRef sample) const;

  const TransformOptions options_;
};

}  // namespace lockstep
