// The other direction of example.h: tf.train.Example messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// What ImageNet's TFRecords say of an image, under their keys.
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
