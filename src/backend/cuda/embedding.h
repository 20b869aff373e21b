// What embedding.cu launches: f32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace lockstep::cuda {

struct EmbeddingLaunch {
  const int32_t* ids;   // [samples,max_ids]
  const float* values;  // [samples,max_ids]
  int64_t samples = 0, max_ids = 0, vocabulary = 0, width = 0;
};
struct EmbeddingWeights {
  const float *table = nullptr, *bias = nullptr;  // [V,D], [D]
};
void launch_embedding(cudaStream_t stream, const EmbeddingLaunch& bags, const EmbeddingWeights& weights, float* y);
void launch_embedding_grad(cudaStream_t stream, const EmbeddingLaunch& bags, const float* dy, float* dtable);

}  // namespace lockstep::cuda
