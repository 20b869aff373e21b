// Batch norm over the samples of all ranks: this rank's sums, and what is made of everybody's.
#include "backend/cuda/norm_terms.h"

namespace lockstep::cuda {
namespace {

// Sums of d = x - running_mean and of d^2, from those of the distances from the channel's first value.
template <class T>
struct SumsFinish {
  const T* x;
  const float* running_mean;
  float* sums;
  double count;
  int64_t channels;

  __device__ void operator()(int64_t channel, double first, double second) const {
    const double inner = first / count;
    const double distance = static_cast<double>(to_float(x[channel])) - running_mean[channel] + inner;
    sums[channel] = static_cast<float>(count * distance);
    sums[channels + channel] = static_cast<float>(second - first * inner + count * distance * distance);
  }
};

__global__ void statistics_of_sums(int64_t channels, double values, float epsilon, SyncNormForward args) {
  for (int64_t c = thread_index(); c < channels; c += grid_threads()) {
    const double distance = args.sums[c] / values;
    const double variance = kernels::rectified(args.sums[channels + c] / values - distance * distance);
    args.mean[c] = static_cast<float>(args.running_mean[c] + distance);
    args.var[c] = static_cast<float>(variance);
    args.saved[c] = static_cast<float>(args.scale[c] / sqrt(variance + epsilon));
    args.saved[channels + c] = args.shift[c];
  }
}

struct GradientSumsFinish {
  const float* var;
  float *dscale, *dshift, *sums;
  double epsilon;
  int64_t channels;

  __device__ void operator()(int64_t channel, double first, double second) const {
    dscale[channel] = sums[channel] = static_cast<float>(second / sqrt(var[channel] + epsilon));
    dshift[channel] = sums[channels + channel] = static_cast<float>(first);
  }
};

__global__ void coefficients_of_sums(int64_t channels, double values, double epsilon, const float* var,
                                     const float* saved, const float* sums, float* coefficients) {
  for (int64_t c = thread_index(); c < channels; c += grid_threads()) {
    const double factor = saved[c] / values;
    coefficients[c] = static_cast<float>(factor * sums[c] / sqrt(var[c] + epsilon));
    coefficients[channels + c] = static_cast<float>(factor * sums[channels + c]);
  }
}

}  // namespace

void launch_sync_norm_sums(cudaStream_t stream, DType dtype, Rows shape, RowsIn x, const float* running_mean,
                           float* sums, const SumsMemory& memory) {
  with_packs(dtype, common_granule(dtype, shape.channels, {x}), [&](auto element, auto lanes) {
    using T = decltype(element);
    const auto values = image_in<T>(x);
    const SumsFinish<T> finish{values.data, running_mean, sums, static_cast<double>(shape.rows), shape.channels};
    launch_sum_rows<decltype(lanes)::value>(stream, shape, BatchTerms<T>{values}, finish, memory);
  });
}

void launch_sync_norm(cudaStream_t stream, DType dtype, const SyncNormForward& args) {
  const int64_t channels = args.shape.channels;
  statistics_of_sums<<<blocks_for(channels), kThreads, 0, stream>>>(channels, args.values, args.epsilon, args);
  with_packs(dtype, common_granule(dtype, channels, {args.x, args.y}), [&](auto element, auto lanes) {
    using T = decltype(element);
    const SavedNorm norm{args.mean, args.saved, channels};
    launch_map_rows<decltype(lanes)::value>(
        stream, args.shape, Normalize<T, SavedNorm>{norm, args.relu, image_in<T>(args.x), image_out<T>(args.y)});
  });
}

void launch_sync_norm_grad_sums(cudaStream_t stream, DType dtype, const SyncNormBackward& args) {
  const int64_t channels = args.shape.channels;
  with_packs(dtype, common_granule(dtype, channels, {args.x, args.dy}), [&](auto element, auto lanes) {
    using T = decltype(element);
    const SavedNorm norm{args.mean, args.saved, channels};
    const GradientSumsFinish finish{args.var, args.dscale, args.dshift, args.own_sums, args.epsilon, channels};
    launch_sum_rows<decltype(lanes)::value>(
        stream, args.shape, GradientTerms<T>{norm, args.relu, image_in<T>(args.x), image_in<T>(args.dy)}, finish,
        args.memory);
  });
}

void launch_sync_norm_grad(cudaStream_t stream, DType dtype, const SyncNormBackward& args) {
  const int64_t channels = args.shape.channels;
  coefficients_of_sums<<<blocks_for(channels), kThreads, 0, stream>>>(channels, args.values, args.epsilon, args.var,
                                                                      args.saved, args.sums, args.coefficients);
  with_packs(dtype, common_granule(dtype, channels, {args.x, args.dy, args.dx}), [&](auto element, auto lanes) {
    using T = decltype(element);
    const SavedNorm norm{args.mean, args.saved, channels};
    launch_map_rows<decltype(lanes)::value>(stream, args.shape,
                                            ApplyGradient<T>{norm, args.relu, image_in<T>(args.x), image_in<T>(args.dy),
                                                             args.coefficients, image_out<T>(args.dx)});
  });
}

}  // namespace lockstep::cuda
