// Writes tf.train.Example messages, which example.h reads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// The features of an image in ImageNet's TFRecords, with their keys.
struct ImageRecord {
  std::string_view encoded;     // image/encoded
  std::string_view format;      // image/format: JPEG or PNG
  std::string_view class_name;  // image/class/text; empty: left out
  int64_t label = 0;            // image/class/label
  int64_t height = 0;           // image/height
  int64_t width = 0;            // image/width
};
std::string serialize_example(const ImageRecord& record);

}  // namespace lockstep
