// What placement.cu launches.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "lockstep/ops/ops.h"

namespace lockstep::cuda {

// Copies `channels` channels of each row between tensors whose rows differ in their number of channels.
struct ChannelCopy {
  int64_t rows = 0, channels = 0;
  int64_t from_channels = 0, from_begin = 0;
  int64_t to_channels = 0, to_begin = 0;
  size_t element_bytes = 0;
};
void launch_channel_copy(cudaStream_t stream, const ChannelCopy& copy, const void* from, void* to);

// Changes the element type and the order of an image in one pass.
struct Conversion {
  int64_t samples = 0, channels = 0, pixels = 0;
  DType from = DType::f32, to = DType::f32;
  bool from_channels_last = false, to_channels_last = false;
  bool from_pairs = false, to_pairs = false;  // the format is paired()
  // Padding channels at the end of each pixel, on a side that is channels last; they are written as zeros.
  int64_t from_padding = 0, to_padding = 0;
  int64_t width = 1;  // pixels of a row
};
// Pixels of a row in memory.
constexpr int64_t stored_width(bool pairs, int64_t width) { return pairs ? width + width % 2 : width; }
// Between plain, channels last, padded and paired; element types may differ.
Conversion conversion_of(const TensorDesc& from, const TensorDesc& to);
void launch_convert(cudaStream_t stream, const Conversion& what, const void* from, void* to);
// Several, all between the same two types, of which one is f32, in as few kernels as possible.
struct ConversionOf {
  Conversion what;
  const void* from = nullptr;
  void* to = nullptr;
};
void launch_convert_many(cudaStream_t stream, std::span<const ConversionOf> conversions);

}  // namespace lockstep::cuda
