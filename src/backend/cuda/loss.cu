#include "backend/cuda/loss.h"

#include "backend/cuda/device.h"

namespace lockstep::cuda {
namespace {

struct RowResult {
  double loss;   // weighted
  int32_t rank;  // how many classes come before the label's, as in cpu/loss.cc; -1: the sample does not count
};

struct Greater {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a > b ? a : b;
  }
};
struct Plus {
  template <class V>
  __device__ V operator()(V a, V b) const {
    return a + b;
  }
};

// Combines one value of each thread, in a fixed order; the result is known to all threads.
template <class V, class Combine>
__device__ V combine_block(V value, const Combine& combine) {
  __shared__ V shared[kThreads];
  shared[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  const V result = shared[0];
  __syncthreads();
  return result;
}

__device__ void sum_results(int64_t samples, const RowResult* rows, const LossForward& args) {
  double loss = 0;
  int32_t first = 0, fifth = 0;
  for (int64_t n = threadIdx.x; n < samples; n += kThreads) {
    loss += rows[n].loss;
    first += rows[n].rank == 0 ? 1 : 0;
    fifth += rows[n].rank >= 0 && rows[n].rank < 5 ? 1 : 0;
  }
  loss = combine_block(loss, Plus{});
  first = combine_block(first, Plus{});
  fifth = combine_block(fifth, Plus{});
  if (threadIdx.x > 0) return;
  *args.loss = static_cast<float>(loss);
  args.correct[0] = first;
  args.correct[1] = fifth;
}

// One block for each sample; the last one adds up. A label that is no class makes the loss NaN, which stops the run.
__global__ void __launch_bounds__(kThreads) softmax_rows(LossShape shape, LossForward args, RowResult* rows) {
  const int64_t n = blockIdx.x, classes = shape.classes;
  const float* logits = args.logits + n * classes;
  float* probabilities = args.probabilities + n * classes;

  float largest = -INFINITY;
  for (int64_t k = threadIdx.x; k < classes; k += kThreads) largest = fmaxf(largest, logits[k]);
  largest = combine_block(largest, Greater{});
  double sum = 0, total = 0;
  for (int64_t k = threadIdx.x; k < classes; k += kThreads) {
    probabilities[k] = expf(logits[k] - largest);
    sum += probabilities[k];
    total += logits[k];
  }
  sum = combine_block(sum, Plus{});
  total = combine_block(total, Plus{});
  const auto scale = static_cast<float>(1 / sum);
  for (int64_t k = threadIdx.x; k < classes; k += kThreads) probabilities[k] *= scale;

  const float weight = args.weights[n];
  const int32_t label = args.labels[n];
  const bool known = label >= 0 && label < classes;
  const float own = known ? logits[label] : NAN;
  if (threadIdx.x == 0) {
    const double log_sum = largest + log(sum);
    const double even = log_sum - total / static_cast<double>(classes);  // against every class in turn
    const double smoothing = shape.label_smoothing;
    rows[n].loss = weight == 0 ? 0 : weight * ((1 - smoothing) * (log_sum - own) + smoothing * even);
  }
  int32_t rank = 0;
  for (int64_t k = threadIdx.x; k < classes; k += kThreads) {
    if (k == label) continue;
    rank += k < label ? !(logits[k] < own) : !(logits[k] <= own);
  }
  rank = combine_block(rank, Plus{});
  __shared__ bool last;
  if (threadIdx.x == 0) {
    rows[n].rank = weight == 0 ? -1 : rank;
    __threadfence();  // what this block wrote is visible before the block is counted
    last = atomicAdd(args.tickets, 1U) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  sum_results(shape.samples, rows, args);
  if (threadIdx.x == 0) *args.tickets = 0;
}

__global__ void softmax_gradient(LossShape shape, LossBackward args) {
  const float everywhere = shape.label_smoothing / static_cast<float>(shape.classes);
  const float factor = args.scale * (args.loss_scale ? *args.loss_scale : 1);
  for (int64_t i = thread_index(); i < shape.samples * shape.classes; i += grid_threads()) {
    const int64_t n = i / shape.classes, k = i % shape.classes;
    const float weight = factor * args.weights[n];
    const float target = everywhere + (k == args.labels[n] ? 1 - shape.label_smoothing : 0);
    args.dlogits[i] = weight == 0 ? 0 : weight * (args.probabilities[i] - target);
  }
}

}  // namespace

size_t loss_workspace_bytes(int64_t samples) { return samples * sizeof(RowResult); }

void launch_loss(cudaStream_t stream, const LossShape& shape, const LossForward& args) {
  auto* rows = static_cast<RowResult*>(args.workspace);
  softmax_rows<<<static_cast<unsigned>(shape.samples), kThreads, 0, stream>>>(shape, args, rows);
}

void launch_loss_grad(cudaStream_t stream, const LossShape& shape, const LossBackward& args) {
  softmax_gradient<<<blocks_for(shape.samples * shape.classes), kThreads, 0, stream>>>(shape, args);
}

}  // namespace lockstep::cuda
