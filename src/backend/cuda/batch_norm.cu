#include "backend/cuda/batch_norm.h"

#include "backend/cuda/batch_norm_terms.h"

namespace lockstep::cuda {
namespace {

struct RunningNorm {
  const float *scale, *shift, *mean, *var;
  float epsilon;

  __device__ kernels::Normalization<float> of(int64_t channel) const {
    return {mean[channel], scale[channel] / sqrtf(var[channel] + epsilon), shift[channel]};
  }
};

template <class T>
struct BatchFinish {
  const T* x;
  const float *scale, *shift;
  float *mean, *var, *saved;
  double count, epsilon;
  int64_t channels;

  __device__ void operator()(int64_t channel, double first, double second) const {
    const double distance = first / count;
    const double raw = second / count - distance * distance;
    const double variance = raw > 0 || isnan(raw) ? raw : 0;
    mean[channel] = static_cast<float>(to_float(x[channel]) + distance);
    var[channel] = static_cast<float>(variance);
    saved[channel] = static_cast<float>(scale[channel] / sqrt(variance + epsilon));
    saved[channels + channel] = shift[channel];
  }
};

// dshift = sum of g, dscale = d * sum of g (x - mean), and the coefficients of dx.
struct GradientFinish {
  const float *var, *saved;
  float *dscale, *dshift, *coefficients;
  double count, epsilon;
  int64_t channels;

  __device__ void operator()(int64_t channel, double first, double second) const {
    const double deviation = 1 / sqrt(var[channel] + epsilon);
    const double factor = saved[channel];
    dshift[channel] = static_cast<float>(first);
    dscale[channel] = static_cast<float>(deviation * second);
    coefficients[channel] = static_cast<float>(factor * deviation * deviation * second / count);
    coefficients[channels + channel] = static_cast<float>(factor * first / count);
  }
};

__global__ void moments(int64_t channels, float samples, const float* mean, const float* var, const float* running,
                        float* first, float* second) {
  for (int64_t c = thread_index(); c < channels; c += grid_threads()) {
    kernels::moment_terms(samples, mean[c], var[c], running[c], first[c], second[c]);
  }
}

// Over the samples of all ranks: this rank's sums, and what is made of everybody's.

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

void launch_norm(cudaStream_t stream, DType dtype, const NormForward& args) {
  const int64_t channels = args.shape.channels;
  with_packs(dtype, common_granule(dtype, channels, {args.x, args.y}), [&](auto element, auto lanes) {
    using T = decltype(element);
    constexpr int kLanes = decltype(lanes)::value;
    const auto x = image_in<T>(args.x);
    const BatchFinish<T> finish{
        x.data,       args.scale, args.shift, args.mean, args.var, args.saved, static_cast<double>(args.shape.rows),
        args.epsilon, channels};
    launch_sum_rows<kLanes>(stream, args.shape, BatchTerms<T>{x}, finish, args.memory);
    const SavedNorm norm{args.mean, args.saved, channels};
    launch_map_rows<kLanes>(stream, args.shape, Normalize<T, SavedNorm>{norm, args.relu, x, image_out<T>(args.y)});
  });
}

void launch_norm_grad(cudaStream_t stream, DType dtype, const NormBackward& args) {
  const int64_t channels = args.shape.channels;
  with_packs(dtype, common_granule(dtype, channels, {args.x, args.dy, args.dx}), [&](auto element, auto lanes) {
    using T = decltype(element);
    constexpr int kLanes = decltype(lanes)::value;
    const auto x = image_in<T>(args.x), dy = image_in<T>(args.dy);
    const SavedNorm norm{args.mean, args.saved, channels};
    const GradientFinish finish{args.var,     args.saved,        args.dscale,
                                args.dshift,  args.coefficients, static_cast<double>(args.shape.rows),
                                args.epsilon, channels};
    launch_sum_rows<kLanes>(stream, args.shape, GradientTerms<T>{norm, args.relu, x, dy}, finish, args.memory);
    launch_map_rows<kLanes>(stream, args.shape,
                            ApplyGradient<T>{norm, args.relu, x, dy, args.coefficients, image_out<T>(args.dx)});
  });
}

void launch_norm_inference(cudaStream_t stream, DType dtype, const NormInference& args) {
  const int64_t granule = common_granule(dtype, args.shape.channels, {args.x, args.y});
  with_packs(dtype, granule, [&](auto element, auto lanes) {
    using T = decltype(element);
    const RunningNorm norm{args.scale, args.shift, args.mean, args.var, args.epsilon};
    launch_map_rows<decltype(lanes)::value>(
        stream, args.shape, Normalize<T, RunningNorm>{norm, args.relu, image_in<T>(args.x), image_out<T>(args.y)});
  });
}

void launch_moments(cudaStream_t stream, int64_t channels, float samples, const float* const (&mean_var_running)[3],
                    float* const (&first_second)[2]) {
  moments<<<blocks_for(channels), kThreads, 0, stream>>>(channels, samples, mean_var_running[0], mean_var_running[1],
                                                         mean_var_running[2], first_second[0], first_second[1]);
}

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
