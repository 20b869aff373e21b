// Work on each channel of a channels-last tensor: a thread holds a pack of channels in registers and strides over rows,
// several of which it loads before it uses the first. For .cu files.
//
// A body says what is done with a row:
//   at<kLanes>(channel)            the values of a pack's channels, computed once by each thread
//   load<kLanes>(location)         what is read of a row
//   row(values, loaded, location)  what is done with it
//   kRowsInFlight                  rows that are loaded before the first is used
//   kBlocksOfProcessor             thread blocks that a multiprocessor must hold at the same time
#pragma once

#include "backend/cuda/device.h"
#include "backend/cuda/rows.h"

namespace lockstep::cuda {

constexpr int kMaxPacksOfBlock = 8;   // side by side: 128 bytes of each row
constexpr int64_t kRowsOfThread = 4;  // at least, where there are enough
// A grid has as many blocks as this many multiprocessors hold at the same time, so that no block waits for another to
// end. An H100 and an H200 have this many; it is a constant, so that sums are added in the same order on every device.
constexpr int64_t kProcessors = 132;

// A row, and the first channel of a thread's pack.
struct Location {
  int64_t row, channel;
};

// An image in memory, as rows of channels; between those of a slice lie other channels.
template <class T>
struct Image {
  T* data;
  int64_t row_elements;  // from a row to the next

  __device__ T* at(Location location) const { return data + location.row * row_elements + location.channel; }
};
template <class T>
Image<const T> image_in(const RowsIn& rows) {
  return {static_cast<const T*>(rows.data), rows.row_elements};
}
template <class T>
Image<T> image_out(const RowsOut& rows) {
  return {static_cast<T*>(rows.data), rows.row_elements};
}

// What a thread reads of a row of an image.
template <class T, int kLanes>
struct Row {
  Pack<T, kLanes> x;
};

// The threads of a block are packs x rows; the blocks along y divide the rows of a column of packs.
struct ChannelGrid {
  dim3 grid, block;
};

// Depends only on the shape, so that sums are added in the same order on every device.
inline ChannelGrid channel_grid(Rows shape, int lanes, int blocks_of_processor) {
  const auto up = [](int64_t n, int64_t by) { return (n + by - 1) / by; };
  const int64_t packs = up(shape.channels, lanes);
  int64_t across = up(packs, kMaxPacksOfBlock);
  int64_t wide = up(packs, across);
  if (wide > 1) wide = up(wide, 2) * 2;  // whole sectors of 32 bytes
  across = up(packs, wide);
  if (across > kTickets) {  // wider blocks, so that there are no more columns than tickets
    wide = up(packs, kTickets);
    across = up(packs, wide);
  }
  const int64_t rows = std::max<int64_t>(kThreads / wide, 1);
  const int64_t wanted = shape.rows / (rows * kRowsOfThread);
  const int64_t down = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(kProcessors * blocks_of_processor / across, 1));
  return {dim3(static_cast<unsigned>(across), static_cast<unsigned>(down)),
          dim3(static_cast<unsigned>(wide), static_cast<unsigned>(rows))};
}

// Calls body.row for all rows of the thread's channels, in order.
template <int kLanes, class Body>
__device__ void for_each_row(Rows shape, Body& body) {
  const int64_t channel = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kLanes;
  if (channel >= shape.channels) return;
  const auto values = body.template at<kLanes>(channel);
  const int64_t stride = int64_t{gridDim.y} * blockDim.y;
  constexpr int kFlight = Body::kRowsInFlight;
  int64_t row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  for (; row + (kFlight - 1) * stride < shape.rows; row += kFlight * stride) {
    decltype(body.template load<kLanes>(Location{})) loaded[kFlight];
#pragma unroll
    for (int i = 0; i < kFlight; ++i) loaded[i] = body.template load<kLanes>(Location{row + i * stride, channel});
#pragma unroll
    for (int i = 0; i < kFlight; ++i) body.row(values, loaded[i], Location{row + i * stride, channel});
  }
  for (; row < shape.rows; row += stride) {
    const Location location{row, channel};
    body.row(values, body.template load<kLanes>(location), location);
  }
}

template <int kLanes, class Body>
__global__ void __launch_bounds__(kThreads, Body::kBlocksOfProcessor) map_rows(Rows shape, Body body) {
  for_each_row<kLanes>(shape, body);
}

template <int kLanes, class Body>
void launch_map_rows(cudaStream_t stream, Rows shape, const Body& body) {
  const ChannelGrid grid = channel_grid(shape, kLanes, Body::kBlocksOfProcessor);
  map_rows<kLanes><<<grid.grid, grid.block, 0, stream>>>(shape, body);
}

}  // namespace lockstep::cuda
