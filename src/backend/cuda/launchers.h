// The launchers of our own kernels: plain functions that enqueue on a stream and return at once. Images are channels
// last, so a tensor is rows (samples and places) of channels; rank-2 tensors are the same with one place. Element types
// are f32, bf16 and f16 unless named; sums are of floats or doubles in an order that depends on shapes alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "lockstep/ops/ops.h"

namespace lockstep::cuda {

struct Rows {
  int64_t rows = 0, channels = 0;
  constexpr int64_t elements() const { return rows * channels; }
};

// Rows in memory, which may be a slice: then other channels lie between them.
struct RowsIn {
  const void* data = nullptr;
  int64_t row_elements = 0;  // from a row to the next
};
struct RowsOut {
  void* data = nullptr;
  int64_t row_elements = 0;
  operator RowsIn() const { return {data, row_elements}; }
};

// Of the sums over rows: partial sums of every block, channel_sums_bytes of scratch memory; and kTickets counters,
// which are zero before and after, by which the last block knows that it is the last (CudaStream::tickets).
constexpr int64_t kTickets = 16384;
struct SumsMemory {
  void* workspace = nullptr;
  unsigned* tickets = nullptr;
};
size_t channel_sums_bytes(Rows shape);

// ---- pointwise.cu: over flat arrays; outputs may be the first input's memory
void launch_relu(cudaStream_t stream, DType dtype, int64_t count, const void* x, void* y);
void launch_relu_grad(cudaStream_t stream, DType dtype, int64_t count, const void* y, const void* dy, void* dx);
// The sum of kMostTerms arrays at most, rounded once.
constexpr size_t kMostTerms = 4;
void launch_add(cudaStream_t stream, DType dtype, int64_t count, std::span<const void* const> terms, void* sum);
// y += bias of the row's channel
void launch_add_bias(cudaStream_t stream, DType dtype, Rows shape, const void* bias, void* y);

// ---- dropout.cu: as DropoutMask chooses (dropout_mask.h); `step` lies on the device
struct DropoutLaunch {
  Dropout op;
  int64_t samples = 0, channels = 0, places = 0;
};
void launch_dropout(cudaStream_t stream, DType dtype, const DropoutLaunch& what, const int32_t* step, const void* x,
                    void* y);

// ---- embedding.cu: f32
struct EmbeddingLaunch {
  const int32_t* ids;   // [samples,most]
  const float* values;  // [samples,most]
  int64_t samples = 0, most = 0, vocabulary = 0, width = 0;
};
void launch_embedding(cudaStream_t stream, const EmbeddingLaunch& bags, const float* const (&table_bias)[2], float* y);
void launch_embedding_grad(cudaStream_t stream, const EmbeddingLaunch& bags, const float* dy, float* dtable);

// ---- norm.cu
// Batch statistics and what the output is made of: saved = slope [C], then shift [C].
struct NormForward {
  Rows shape;
  float epsilon = 0;
  bool relu = false;
  RowsIn x;
  const float *scale, *shift;
  RowsOut y;
  float *mean, *var, *saved;
  SumsMemory memory;
};
void launch_norm(cudaStream_t stream, DType dtype, const NormForward& args);

struct NormBackward {
  Rows shape;
  float epsilon = 0;
  bool relu = false;
  RowsIn x, dy;
  const float *mean, *var, *saved;
  RowsOut dx;
  float *dscale, *dshift;
  SumsMemory memory;
  float* coefficients;  // [2,C] of scratch memory
};
void launch_norm_grad(cudaStream_t stream, DType dtype, const NormBackward& args);

struct NormInference {
  Rows shape;
  float epsilon = 0;
  bool relu = false;
  RowsIn x;
  const float *scale, *shift, *mean, *var;
  RowsOut y;
};
void launch_norm_inference(cudaStream_t stream, DType dtype, const NormInference& args);
// first, second of BatchMoments; f32
void launch_moments(cudaStream_t stream, int64_t channels, float samples, const float* const (&mean_var_running)[3],
                    float* const (&first_second)[2]);
// sums[c] = sum over rows of values, in the element type of the values
void launch_channel_sums(cudaStream_t stream, DType dtype, Rows shape, const void* values, void* sums,
                         const SumsMemory& memory);

// ---- sync_norm.cu: over the samples of all ranks; `values`: of a channel on all of them together
void launch_sync_norm_sums(cudaStream_t stream, DType dtype, Rows shape, RowsIn x, const float* running_mean,
                           float* sums, const SumsMemory& memory);
struct SyncNormForward {
  Rows shape;
  double values = 0;
  float epsilon = 0;
  bool relu = false;
  RowsIn x;
  const float *scale, *shift, *running_mean, *sums;
  RowsOut y;
  float *mean, *var, *saved;  // as of NormForward
};
void launch_sync_norm(cudaStream_t stream, DType dtype, const SyncNormForward& args);
struct SyncNormBackward {
  Rows shape;
  double values = 0;
  float epsilon = 0;
  bool relu = false;
  RowsIn x, dy;
  const float *mean, *var, *saved;
  float *dscale = nullptr, *dshift = nullptr, *own_sums = nullptr;  // of the sums
  const float* sums = nullptr;                                      // of the gradient: of all ranks
  RowsOut dx = {};
  SumsMemory memory = {};         // of the sums
  float* coefficients = nullptr;  // of the gradient: [2,C] of scratch memory
};
void launch_sync_norm_grad_sums(cudaStream_t stream, DType dtype, const SyncNormBackward& args);
void launch_sync_norm_grad(cudaStream_t stream, DType dtype, const SyncNormBackward& args);

// ---- pool.cu
struct PoolLaunch {
  Window window;
  Shape image, out;               // [N,C,H,W]
  bool count_include_pad = true;  // average
};
// saved: for each output the place of the maximum in its window, kNoMaximum where the window is all padding
constexpr int kNoMaximum = 255;
void launch_max_pool(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const void* x, void* y, uint8_t* saved);
void launch_max_pool_grad(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const void* dy,
                          const uint8_t* saved, void* dx);
void launch_avg_pool(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const void* x, void* y);
void launch_avg_pool_grad(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const void* dy, void* dx);

// ---- local_response_norm.cu
struct LrnLaunch {
  Rows shape;
  int64_t size = 0;
  float alpha_over_size = 0, beta = 0, k = 0;
};
void launch_lrn(cudaStream_t stream, DType dtype, const LrnLaunch& lrn, const void* x, void* y);
void launch_lrn_grad(cudaStream_t stream, DType dtype, const LrnLaunch& lrn, const void* x, const void* dy, void* dx);

// ---- placement.cu
// Copies `channels` of each row between tensors whose rows have other numbers of channels.
struct ChannelCopy {
  int64_t rows = 0, channels = 0;
  int64_t from_channels = 0, from_begin = 0;
  int64_t to_channels = 0, to_begin = 0;
  size_t element_bytes = 0;
};
void launch_channel_copy(cudaStream_t stream, const ChannelCopy& copy, const void* from, void* to);

// Element type and order of an image changed at once.
struct Conversion {
  int64_t samples = 0, channels = 0, places = 0;
  DType from = DType::f32, to = DType::f32;
  bool from_channels_last = false, to_channels_last = false;
  // Channels behind the others of a side that is channels last; zeros are written.
  int64_t from_padding = 0, to_padding = 0;
};
void launch_convert(cudaStream_t stream, const Conversion& what, const void* from, void* to);

}  // namespace lockstep::cuda
