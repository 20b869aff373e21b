// What pointwise.cu launches. Outputs of the flat arrays' kernels may be the first input's memory.
#pragma once

#include <span>

#include "backend/cuda/rows.h"
#include "lockstep/ops/ops.h"
#include "lockstep/ops/pixels.h"

namespace lockstep::cuda {

void launch_relu(cudaStream_t stream, DType dtype, int64_t count, bool six, const void* x, void* y);
void launch_relu_grad(cudaStream_t stream, DType dtype, int64_t count, bool six, const void* y, const void* dy,
                      void* dx);
// The sum of at most kMaxTerms arrays, rounded once.
constexpr size_t kMaxTerms = 4;
void launch_add(cudaStream_t stream, DType dtype, int64_t count, std::span<const void* const> terms, void* sum);
// y += bias of the row's channel
void launch_add_bias(cudaStream_t stream, DType dtype, Rows shape, const void* bias, void* y);

// As DropoutMask chooses (dropout_mask.h); `step` lies on the device.
struct DropoutLaunch {
  Dropout op;
  int64_t samples = 0, channels = 0, pixels = 0;
};
void launch_dropout(cudaStream_t stream, DType dtype, const DropoutLaunch& what, const int32_t* step, const void* x,
                    void* y);

// y is channels last, with padding to `stored` channels: 3, or in 16 bits 4 or 8. Its rows have `to_width` pixels; one
// more than the image's is zero.
struct PixelsLaunch {
  PreparePixels op;
  int64_t samples = 0, stored = 0;
  int pixels = 0, width = 0, to_width = 0;
};
void launch_prepare_pixels(cudaStream_t stream, const PixelsLaunch& what, const uint8_t* bytes,
                           const ImageChanges* changes, void* y);

}  // namespace lockstep::cuda
