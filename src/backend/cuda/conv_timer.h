// Times plans of one convolution.
#pragma once

#include <array>
#include <functional>
#include <optional>

#include "backend/cuda/conv_plan.h"
#include "backend/cuda/stream.h"

namespace lockstep::cuda {

// Fills device memory with numbers of either sign, in every element type; zeros would be multiplied faster.
void fill_with_noise(void* memory, size_t bytes, cudaStream_t stream);

// Memory for the tensors and the workspace of a problem, and a stream that the planner's cuDNN handle has meanwhile.
class ConvTimer {
 public:
  // Throws OutOfMemory.
  ConvTimer(cudnnHandle_t handle, const ConvProblem& problem, size_t workspace_bytes);
  ~ConvTimer();
  ConvTimer(const ConvTimer&) = delete;
  ConvTimer& operator=(const ConvTimer&) = delete;

  void* tensor(int64_t id) const { return memory_.as<char>() + at_[id]; }
  void* workspace() const { return memory_.as<char>() + at_[kAfterLast]; }

  // Seconds of one run when the device does nothing else, the median of a few; one measurement suffices for what takes
  // more than twice as long as `best` (0: nothing yet). Nothing if `run`, which enqueues it, throws; throws if the
  // device itself has failed.
  std::optional<double> seconds(const std::function<void()>& run, double best);

 private:
  double measure(const std::function<void()>& work);

  const cudnnHandle_t handle_;
  cudaStream_t stream_before_ = nullptr;
  CudaStream stream_;
  CudaEvent begin_{true}, end_{true};
  std::array<size_t, kAfterLast + 1> at_{};  // by TensorId; the last: the workspace
  Buffer memory_;
};

}  // namespace lockstep::cuda
