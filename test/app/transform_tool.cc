// The network's input for one picture in evaluation, for comparisons with other programs:
// transform_tool FILE AUGMENT SIZE writes [3,SIZE,SIZE] float32, on the scale 0..255, to standard output.
#include <cstdio>
#include <exception>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/data/image/augment.h"
#include "lockstep/data/image/decode.h"
#include "lockstep/io/file.h"

namespace {

int run(const std::string& path, const std::string& augment, int64_t size) {
  using namespace lockstep;
  const auto how = parse_augment(augment);
  require(how.has_value(), "{} is no augmentation", augment);
  Image image;
  decode_image(read_file(path, ExitCode::data), image);
  TransformScratch scratch;
  std::vector<float> output(static_cast<size_t>(3 * size * size));
  Transform({.augment = *how, .normalize = Normalize::none, .image_size = size, .training = false})
      .apply({.u8 = image.pixels.data(), .height = image.height, .width = image.width}, {}, scratch, output.data());
  return std::fwrite(output.data(), sizeof(float), output.size(), stdout) == output.size() ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return 2;
  try {
    return run(arguments[1], arguments[2], std::stoll(arguments[3]));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
