// What embedding.cu launches: f32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace lockstep::cuda {

struct EmbeddingLaunch {
  const int32_t* ids;   // [samples,most]
  const float* values;  // [samples,most]
  int64_t samples = 0, most = 0, vocabulary = 0, width = 0;
};
void launch_embedding(cudaStream_t stream, const EmbeddingLaunch& bags, const float* const (&table_bias)[2], float* y);
void launch_embedding_grad(cudaStream_t stream, const EmbeddingLaunch& bags, const float* dy, float* dtable);

}  // namespace lockstep::cuda
