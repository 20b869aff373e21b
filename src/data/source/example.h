// Reads tf.train.Example messages in place, by the protocol-buffer wire format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/data/source/data_source.h"

namespace lockstep {

// The two features an image record must have, under the names of the ImageNet converters.
struct ImageExample {
  std::span<const std::byte> encoded;  // "image/encoded"; points into the record
  int64_t label = 0;                   // "image/class/label", as stored
};

// Parses one record. Throws BadRecord if it is not an Example, lacks a feature (the message names those it has), or has
// a feature of another type or with several values, because it is unclear which of two labels is meant.
ImageExample parse_image_example(std::span<const std::byte> record);

// Parses one record of ids and values into `sample`: its label (a list of one integer, or of one float that is a whole
// number), ids (integers) and values (floats, as many; a record without that feature has values of 1). Throws
// BadRecord, also for a feature of another type, which never counts as an empty one. Needs at most 16 bytes of memory
// per byte of the record.
void parse_sparse_example(std::span<const std::byte> record, const SparseKeys& keys, Sample& sample);

}  // namespace lockstep
