// Work a channel of a channels-last tensor: a thread holds a pack of channels in registers and strides over rows. For
// .cu files.
#pragma once

#include "backend/cuda/device.h"
#include "backend/cuda/launchers.h"

namespace lockstep::cuda {

constexpr int kPacksOfBlock = 8;      // side by side: 128 bytes of each row
constexpr int kRowsOfBlock = 32;      // at once
constexpr int64_t kRowsOfThread = 4;  // at least, where there are enough
constexpr int64_t kMostRowBlocks = 1024;

// A row, and the first channel of a thread's pack.
struct Place {
  int64_t row, channel;
};

// An image in memory, as rows of channels; between those of a slice lie other channels.
template <class T>
struct Image {
  T* data;
  int64_t row_elements;  // from a row to the next

  __device__ T* at(Place place) const { return data + place.row * row_elements + place.channel; }
};
template <class T>
Image<const T> image_in(const RowsIn& rows) {
  return {static_cast<const T*>(rows.data), rows.row_elements};
}
template <class T>
Image<T> image_out(const RowsOut& rows) {
  return {static_cast<T*>(rows.data), rows.row_elements};
}

struct ChannelGrid {
  dim3 grid, block{kPacksOfBlock, kRowsOfBlock};
};

// Depends on the shape alone, so that sums are added in the same order on every device.
inline ChannelGrid channel_grid(Rows shape, int lanes) {
  const int64_t across = (shape.channels / lanes + kPacksOfBlock - 1) / kPacksOfBlock;
  const int64_t wanted = shape.rows / (kRowsOfBlock * kRowsOfThread);
  const int64_t down = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(kMostRowBlocks / across, 1));
  return {dim3(static_cast<unsigned>(across), static_cast<unsigned>(down))};
}

// Calls body.row(channel values, place of the pack) for all rows of a thread's channels; body.at<kLanes>(channel)
// makes the channel values once.
template <int kLanes, class Body>
__device__ void for_each_row(Rows shape, Body& body) {
  const int64_t channel = (int64_t{blockIdx.x} * kPacksOfBlock + threadIdx.x) * kLanes;
  if (channel >= shape.channels) return;
  const auto values = body.template at<kLanes>(channel);
  const int64_t stride = int64_t{gridDim.y} * kRowsOfBlock;
  for (int64_t row = int64_t{blockIdx.y} * kRowsOfBlock + threadIdx.y; row < shape.rows; row += stride) {
    body.row(values, Place{row, channel});
  }
}

template <int kLanes, class Body>
__global__ void __launch_bounds__(kPacksOfBlock* kRowsOfBlock) map_rows(Rows shape, Body body) {
  for_each_row<kLanes>(shape, body);
}

// Two sums a channel over this block's rows, to partial[block row][2][C]: in float within a thread, then in double.
// Terms::row(values, offset, first, second) adds to the sums.
template <int kLanes, class Terms>
struct Summing {
  Terms terms;
  float first[kLanes] = {}, second[kLanes] = {};

  template <int kSame>
  __device__ auto at(int64_t channel) const {
    return terms.template at<kSame>(channel);
  }
  template <class Values>
  __device__ void row(const Values& values, Place place) {
    terms.row(values, place, first, second);
  }
};

template <int kLanes, class Terms>
__global__ void __launch_bounds__(kPacksOfBlock* kRowsOfBlock) sum_rows(Rows shape, Terms terms, double* partial) {
  Summing<kLanes, Terms> sums{terms};
  for_each_row<kLanes>(shape, sums);
  constexpr int kChannels = kPacksOfBlock * kLanes;
  __shared__ float shared[2][kRowsOfBlock][kChannels];
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    shared[0][threadIdx.y][threadIdx.x * kLanes + lane] = sums.first[lane];
    shared[1][threadIdx.y][threadIdx.x * kLanes + lane] = sums.second[lane];
  }
  __syncthreads();
  for (int i = threadIdx.y * kPacksOfBlock + threadIdx.x; i < 2 * kChannels; i += kPacksOfBlock * kRowsOfBlock) {
    const int which = i / kChannels, c = i % kChannels;
    const int64_t channel = int64_t{blockIdx.x} * kChannels + c;
    if (channel >= shape.channels) continue;
    double sum = 0;
    for (int row = 0; row < kRowsOfBlock; ++row) sum += shared[which][row][c];
    partial[(int64_t{blockIdx.y} * 2 + which) * shape.channels + channel] = sum;
  }
}

constexpr int kFinishChannels = 32, kFinishRows = 8;

// Adds the partial sums of each channel, in a fixed order, and calls finish(channel, first, second) once for it.
template <class Finish>
__global__ void __launch_bounds__(kFinishChannels* kFinishRows)
    finish_sums(int64_t channels, unsigned blocks, const double* partial, Finish finish) {
  const int64_t channel = int64_t{blockIdx.x} * kFinishChannels + threadIdx.x;
  double first = 0, second = 0;
  if (channel < channels) {
    for (unsigned block = threadIdx.y; block < blocks; block += kFinishRows) {
      first += partial[int64_t{block} * 2 * channels + channel];
      second += partial[(int64_t{block} * 2 + 1) * channels + channel];
    }
  }
  __shared__ double shared[2][kFinishRows][kFinishChannels];
  shared[0][threadIdx.y][threadIdx.x] = first;
  shared[1][threadIdx.y][threadIdx.x] = second;
  __syncthreads();
  if (threadIdx.y > 0 || channel >= channels) return;
  for (int row = 1; row < kFinishRows; ++row) {
    first += shared[0][row][threadIdx.x];
    second += shared[1][row][threadIdx.x];
  }
  finish(channel, first, second);
}

template <int kLanes, class Body>
void launch_map_rows(cudaStream_t stream, Rows shape, const Body& body) {
  const ChannelGrid grid = channel_grid(shape, kLanes);
  map_rows<kLanes><<<grid.grid, grid.block, 0, stream>>>(shape, body);
}

template <int kLanes, class Terms, class Finish>
void launch_sum_rows(cudaStream_t stream, Rows shape, const Terms& terms, const Finish& finish, void* workspace) {
  const ChannelGrid grid = channel_grid(shape, kLanes);
  auto* partial = static_cast<double*>(workspace);
  sum_rows<kLanes><<<grid.grid, grid.block, 0, stream>>>(shape, terms, partial);
  const auto blocks = static_cast<unsigned>((shape.channels + kFinishChannels - 1) / kFinishChannels);
  finish_sums<<<blocks, dim3(kFinishChannels, kFinishRows), 0, stream>>>(shape.channels, grid.grid.y, partial, finish);
}

}  // namespace lockstep::cuda
