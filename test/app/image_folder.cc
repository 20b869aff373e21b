// image_folder DIRECTORY COUNT: writes COUNT small JPEGs, in turn into DIRECTORY/ant, DIRECTORY/bee and DIRECTORY/cat.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "test/data/image_writer.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  constexpr int kSide = 32;
  const std::vector<std::string> classes = {"ant", "bee", "cat"};
  const int count = std::atoi(argv[2]);
  for (int i = 0; i < count; ++i) {
    const size_t label = static_cast<size_t>(i) % classes.size();
    std::vector<uint8_t> pixels(kSide * kSide * 3);
    for (size_t p = 0; p < pixels.size(); ++p) {
      pixels[p] = static_cast<uint8_t>(p % 3 == label ? 200 : (p * 7 + static_cast<size_t>(i)) % 64);
    }
    const std::filesystem::path directory = std::filesystem::path(argv[1]) / classes[label];
    std::filesystem::create_directories(directory);
    std::ofstream(directory / (std::to_string(i) + ".jpg"), std::ios::binary)
        << lockstep::encode_jpeg(pixels, kSide, kSide, {});
  }
}
