#include "backend/cuda/channel_sums.h"

namespace lockstep::cuda {
namespace {

template <class T>
struct PlainTerms {
  static constexpr int kRowsInFlight = 8, kBlocksOfProcessor = 2;
  Image<const T> values;

  template <int kLanes>
  __device__ auto at(int64_t) const {
    return std::integral_constant<int, kLanes>{};
  }
  template <int kLanes>
  __device__ Row<T, kLanes> load(Location location) const {
    return {load_pack<T, kLanes>(values.at(location))};
  }
  template <int kLanes>
  __device__ void row(std::integral_constant<int, kLanes>, const Row<T, kLanes>& loaded, float* first, float*) const {
    float row_values[kLanes];
    unpack(loaded.x, row_values);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) first[i] += row_values[i];
  }
};

template <class T>
struct PlainFinish {
  T* sums;
  __device__ void operator()(int64_t channel, double first, double) const {
    sums[channel] = from_float<T>(static_cast<float>(first));
  }
};

}  // namespace

size_t channel_sums_bytes(Rows shape) {
  // Wider packs mean more blocks along the rows. The width depends on the element type, so this is the most of all.
  unsigned blocks = 0;
  for (int lanes : {1, kWidest<float>, kWidest<__half>}) {
    if (shape.channels % lanes == 0) blocks = std::max(blocks, channel_grid(shape, lanes, kMaxSumBlocks).grid.y);
  }
  return size_t{blocks} * 2 * shape.channels * sizeof(double);
}

void launch_channel_sums(cudaStream_t stream, DType dtype, Rows shape, const void* values, void* sums,
                         const SumsMemory& memory) {
  const int64_t granule = common_granule(dtype, shape.channels, {{values, shape.channels}});
  with_packs(dtype, granule, [&](auto element, auto lanes) {
    using T = decltype(element);
    launch_sum_rows<decltype(lanes)::value>(stream, shape,
                                            PlainTerms<T>{{static_cast<const T*>(values), shape.channels}},
                                            PlainFinish<T>{static_cast<T*>(sums)}, memory);
  });
}

}  // namespace lockstep::cuda
