// What loss.cu launches: f32.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::cuda {

struct LossShape {
  int64_t samples = 0, classes = 0;
  float label_smoothing = 0;
};
struct LossForward {
  const float* logits;
  const int32_t* labels;
  const float* weights;
  float *probabilities, *loss;
  int32_t* correct;
  void* workspace;    // loss_workspace_bytes
  unsigned* tickets;  // as of SumsMemory
};
size_t loss_workspace_bytes(int64_t samples);
void launch_loss(cudaStream_t stream, const LossShape& shape, const LossForward& args);
struct LossBackward {
  const float* probabilities;
  const int32_t* labels;
  const float* weights;
  const float* loss_scale;  // null: 1
  float scale = 1;
  float* dlogits;
};
void launch_loss_grad(cudaStream_t stream, const LossShape& shape, const LossBackward& args);

}  // namespace lockstep::cuda
