// How kernels see a tensor. Images are channels last, so a tensor is rows (samples and pixels) of channels; rank-2
// tensors are the same with one pixel. What <stem>.cu launches for <stem>.cc is declared in <stem>.h: plain functions
// that enqueue on a stream and return at once. Element types are f32, bf16 and f16 unless named; sums are of floats or
// doubles in an order that depends only on shapes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/tensor/tensor.h"

namespace lockstep::cuda {

struct Rows {
  int64_t rows = 0, channels = 0;
  constexpr int64_t elements() const { return rows * channels; }
};

// Rows in memory. Those of a channel slice have other channels between them.
struct RowsIn {
  const void* data = nullptr;
  int64_t row_elements = 0;  // from a row to the next
};
struct RowsOut {
  void* data = nullptr;
  int64_t row_elements = 0;
  operator RowsIn() const { return {data, row_elements}; }
};

// The scratch memory of sums over rows: channel_sums_bytes for the partial sums of every block, and kTickets counters,
// zero before and after, by which a block finds that it is the last (CudaStream::tickets).
constexpr int64_t kTickets = 16384;
struct SumsMemory {
  void* workspace = nullptr;
  unsigned* tickets = nullptr;
};
size_t channel_sums_bytes(Rows shape);
// sums[c] = sum over rows of values, in the element type of the values.
void launch_channel_sums(cudaStream_t stream, DType dtype, Rows shape, const void* values, void* sums,
                         const SumsMemory& memory);

}  // namespace lockstep::cuda
