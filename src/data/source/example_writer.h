// The other direction of example.h and record_index.h: tf.train.Example messages, framed as TFRecords.
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

// Appends `data` with its length and checksums to the content of a TFRecord file.
void append_record(std::string_view data, std::string& file);

}  // namespace lockstep
