// Sums a channel over all rows of a channels-last tensor (channels.h), finished by the last block of the same kernel.
// For .cu files.
#pragma once

#include "backend/cuda/channels.h"

namespace lockstep::cuda {

// The most blocks that a multiprocessor holds at the same time, over all kernels that sum rows.
constexpr int kMaxSumBlocks = 2;

// Two sums for each channel over a thread's rows, in float. Terms::row(values, loaded, first, second) adds to them.
template <int kLanes, class Terms>
struct Summing {
  static constexpr int kRowsInFlight = Terms::kRowsInFlight;
  Terms terms;
  float first[kLanes] = {}, second[kLanes] = {};

  template <int kSame>
  __device__ auto at(int64_t channel) const {
    return terms.template at<kSame>(channel);
  }
  template <int kSame>
  __device__ auto load(Location location) const {
    return terms.template load<kSame>(location);
  }
  template <class Values, class Loaded>
  __device__ void row(const Values& values, const Loaded& loaded, Location) {
    terms.row(values, loaded, first, second);
  }
};

// Where the blocks of a column of channels write their sums, [which][channel][block], and are counted.
struct Partials {
  double* sums;
  unsigned* tickets;  // one for each column; zero before and after
  __device__ double* of(Rows shape, int which, int64_t channel) const {
    return sums + (which * shape.channels + channel) * gridDim.y;
  }
};

constexpr int kFinishSums = 128, kFinishLanes = 16;  // sums added at the same time; threads that share one

// The last block of a column: adds the sums of its blocks, in a fixed order, and calls finish(channel, first, second)
// once for each channel. `shared`: memory of the block.
template <class Finish>
__device__ void finish_column(Rows shape, int channels, const Partials& partials, const Finish& finish,
                              double (&shared)[kFinishSums][kFinishLanes]) {
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int threads = static_cast<int>(blockDim.x * blockDim.y), groups = threads / kFinishLanes;
  const int group = thread / kFinishLanes, lane = thread % kFinishLanes;
  const int64_t begin = int64_t{blockIdx.x} * channels;
  for (int done = 0; done < channels; done += kFinishSums / 2) {
    for (int sum = group; sum < kFinishSums && group < groups; sum += groups) {
      const int64_t channel = begin + done + sum / 2;
      if (done + sum / 2 >= channels || channel >= shape.channels) break;
      const double* from = partials.of(shape, sum % 2, channel);
      double total = 0;
#pragma unroll 8
      for (unsigned block = lane; block < gridDim.y; block += kFinishLanes) total += from[block];
      shared[sum][lane] = total;
    }
    __syncthreads();
    for (int i = thread; i < kFinishSums / 2; i += threads) {
      const int64_t channel = begin + done + i;
      if (done + i >= channels || channel >= shape.channels) break;
      double first = 0, second = 0;
      for (int part = 0; part < kFinishLanes; ++part) {
        first += shared[2 * i][part];
        second += shared[2 * i + 1][part];
      }
      finish(channel, first, second);
    }
    __syncthreads();
  }
}

// Sums over all rows: in float within a thread, then in double.
template <int kLanes, class Terms, class Finish>
__global__ void __launch_bounds__(kThreads, Terms::kBlocksOfProcessor)
    sum_rows(Rows shape, Terms terms, Partials partials, Finish finish) {
  Summing<kLanes, Terms> sums{terms};
  for_each_row<kLanes>(shape, sums);
  constexpr int kBytes =
      std::max<int>(2 * kThreads * kLanes * sizeof(float), kFinishSums * kFinishLanes * sizeof(double));
  __shared__ alignas(16) unsigned char memory[kBytes];
  auto* const shared = reinterpret_cast<float*>(memory);  // [which][row][channel]
  const int channels = static_cast<int>(blockDim.x) * kLanes, rows = static_cast<int>(blockDim.y);
  const int own = static_cast<int>(threadIdx.y) * channels + static_cast<int>(threadIdx.x) * kLanes;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    shared[own + lane] = sums.first[lane];
    shared[rows * channels + own + lane] = sums.second[lane];
  }
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int i = thread; i < 2 * channels; i += static_cast<int>(blockDim.x * blockDim.y)) {
    const int which = i / channels, c = i % channels;
    const int64_t channel = int64_t{blockIdx.x} * channels + c;
    if (channel >= shape.channels) continue;
    double sum = 0;
    for (int row = 0; row < rows; ++row) sum += shared[(which * rows + row) * channels + c];
    partials.of(shape, which, channel)[blockIdx.y] = sum;
  }
  __threadfence();  // what this block wrote is visible before the block is counted
  __shared__ bool last;
  __syncthreads();
  if (thread == 0) last = atomicAdd(partials.tickets + blockIdx.x, 1U) == gridDim.y - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  finish_column(shape, channels, partials, finish, *reinterpret_cast<double(*)[kFinishSums][kFinishLanes]>(memory));
  if (thread == 0) partials.tickets[blockIdx.x] = 0;
}

template <int kLanes, class Terms, class Finish>
void launch_sum_rows(cudaStream_t stream, Rows shape, const Terms& terms, const Finish& finish,
                     const SumsMemory& memory) {
  static_assert(Terms::kBlocksOfProcessor <= kMaxSumBlocks);
  const ChannelGrid grid = channel_grid(shape, kLanes, Terms::kBlocksOfProcessor);
  const Partials partials{static_cast<double*>(memory.workspace), memory.tickets};
  sum_rows<kLanes><<<grid.grid, grid.block, 0, stream>>>(shape, terms, partials, finish);
}

}  // namespace lockstep::cuda
