#include "backend/cuda/embedding.h"

#include "backend/cuda/device.h"

namespace lockstep::cuda {
namespace {

constexpr int64_t kMaxRowRanges = 1024;

// One block for each sample, one thread for each channel.
__global__ void __launch_bounds__(kThreads)
    sum_bags(EmbeddingLaunch bags, const float* table, const float* bias, float* y) {
  const int64_t n = blockIdx.x;
  for (int64_t d = threadIdx.x; d < bags.width; d += kThreads) {
    float sum = bias[d];
    for (int64_t l = n * bags.max_ids; l < (n + 1) * bags.max_ids && bags.ids[l] >= 0; ++l) {
      sum += bags.values[l] * table[bags.ids[l] * bags.width + d];
    }
    y[n * bags.width + d] = sum;
  }
}

// One block for each range of the table's rows, one thread for each of their channels: no other thread writes there, so
// the sums are in the order of the samples.
__global__ void __launch_bounds__(kThreads)
    scatter_bags(EmbeddingLaunch bags, int64_t rows, const float* dy, float* dtable) {
  const int64_t begin = blockIdx.x * rows;
  const int64_t end = begin + rows < bags.vocabulary ? begin + rows : bags.vocabulary;
  for (int64_t d = threadIdx.x; d < bags.width; d += kThreads) {
    for (int64_t row = begin; row < end; ++row) dtable[row * bags.width + d] = 0;
    for (int64_t n = 0; n < bags.samples; ++n) {
      for (int64_t l = n * bags.max_ids; l < (n + 1) * bags.max_ids && bags.ids[l] >= 0; ++l) {
        const int64_t id = bags.ids[l];
        if (id >= begin && id < end) dtable[id * bags.width + d] += bags.values[l] * dy[n * bags.width + d];
      }
    }
  }
}

}  // namespace

void launch_embedding(cudaStream_t stream, const EmbeddingLaunch& bags, const EmbeddingWeights& weights, float* y) {
  sum_bags<<<static_cast<unsigned>(bags.samples), kThreads, 0, stream>>>(bags, weights.table, weights.bias, y);
}

void launch_embedding_grad(cudaStream_t stream, const EmbeddingLaunch& bags, const float* dy, float* dtable) {
  const int64_t rows = (bags.vocabulary + kMaxRowRanges - 1) / kMaxRowRanges;
  const auto blocks = static_cast<unsigned>((bags.vocabulary + rows - 1) / rows);
  scatter_bags<<<blocks, kThreads, 0, stream>>>(bags, rows, dy, dtable);
}

}  // namespace lockstep::cuda
