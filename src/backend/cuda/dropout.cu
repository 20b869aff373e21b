#include "backend/cuda/device.h"
#include "backend/cuda/launchers.h"
#include "backend/dropout_mask.h"

namespace lockstep::cuda {
namespace {

// Elements are numbered in logical order, [C,H,W] within a sample, though they lie channels last.
template <class T>
__global__ void drop(DropoutLaunch what, const int32_t* step, const T* x, T* y) {
  const DropoutMask mask(what.op, std::span<const int32_t, 4>(step, 4));
  const auto factor = static_cast<float>(1 / (1 - what.op.rate));
  const int64_t of_sample = what.channels * what.places;
  for (int64_t i = thread_index(); i < what.samples * of_sample; i += grid_threads()) {
    const int64_t n = i / of_sample, inside = i % of_sample;
    const int64_t place = inside / what.channels, channel = inside % what.channels;
    const uint64_t counter = mask.counter(n, of_sample) + static_cast<uint64_t>(channel * what.places + place);
    y[i] = from_float<T>(mask.keeps(counter) ? to_float(x[i]) * factor : 0);
  }
}

}  // namespace

void launch_dropout(cudaStream_t stream, DType dtype, const DropoutLaunch& what, const int32_t* step, const void* x,
                    void* y) {
  const int64_t count = what.samples * what.channels * what.places;
  with_element(dtype, [&](auto element) {
    using T = decltype(element);
    drop<T><<<blocks_for(count), kThreads, 0, stream>>>(what, step, static_cast<const T*>(x), static_cast<T*>(y));
  });
}

}  // namespace lockstep::cuda
