#include "backend/cuda/norm_terms.h"

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

template <class T>
struct PlainTerms {
  static constexpr int kRowsInFlight = 8, kBlocksOfProcessor = 2;
  Image<const T> values;

  template <int kLanes>
  __device__ auto at(int64_t) const {
    return std::integral_constant<int, kLanes>{};
  }
  template <int kLanes>
  __device__ Row<T, kLanes> load(Place place) const {
    return {load_pack<T, kLanes>(values.at(place))};
  }
  template <int kLanes>
  __device__ void row(std::integral_constant<int, kLanes>, const Row<T, kLanes>& loaded, float* first, float*) const {
    float row_values[kLanes];
    unpack(loaded.x, row_values);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) first[i] += row_values[i];
  }
};

template <class T>
struct PlainFinish {
  T* sums;
  __device__ void operator()(int64_t channel, double first, double) const {
    sums[channel] = from_float<T>(static_cast<float>(first));
  }
};

__global__ void moments(int64_t channels, float samples, const float* mean, const float* var, const float* running,
                        float* first, float* second) {
  for (int64_t c = thread_index(); c < channels; c += grid_threads()) {
    kernels::moment_terms(samples, mean[c], var[c], running[c], first[c], second[c]);
  }
}

// Of all sums over rows.
constexpr int kMostSumBlocks = 2;
static_assert(BatchTerms<float>::kBlocksOfProcessor <= kMostSumBlocks &&
              GradientTerms<float>::kBlocksOfProcessor <= kMostSumBlocks &&
              PlainTerms<float>::kBlocksOfProcessor <= kMostSumBlocks);

}  // namespace

size_t channel_sums_bytes(Rows shape) {
  // The wider the packs, the more blocks share the rows; which width it will be depends on the element type.
  unsigned blocks = 0;
  for (int lanes : {1, kWidest<float>, kWidest<__half>}) {
    if (shape.channels % lanes == 0) blocks = std::max(blocks, channel_grid(shape, lanes, kMostSumBlocks).grid.y);
  }
  return size_t{blocks} * 2 * static_cast<size_t>(shape.channels) * sizeof(double);
}

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

void launch_channel_sums(cudaStream_t stream, DType dtype, Rows shape, const void* values, void* sums,
                         const SumsMemory& memory) {
  const int64_t granule = common_granule(dtype, shape.channels, {{values, shape.channels}});
  with_packs(dtype, granule, [&](auto element, auto lanes) {
    using T = decltype(element);
    launch_sum_rows<decltype(lanes)::value>(stream, shape,
                                            PlainTerms<T>{{static_cast<const T*>(values), shape.channels}},
                                            PlainFinish<T>{static_cast<T*>(sums)}, memory);
  });
}

}  // namespace lockstep::cuda
