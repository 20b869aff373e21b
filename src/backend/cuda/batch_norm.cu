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
  const float *var, *factors;
  float *dscale, *dshift, *coefficients;
  double count, epsilon;
  int64_t channels;

  __device__ void operator()(int64_t channel, double first, double second) const {
    const double deviation = 1 / sqrt(var[channel] + epsilon);
    const double factor = factors[channel];
    dshift[channel] = static_cast<float>(first);
    dscale[channel] = static_cast<float>(deviation * second);
    coefficients[channel] = static_cast<float>(factor * deviation * deviation * second / count);
    coefficients[channels + channel] = static_cast<float>(factor * first / count);
  }
};

__global__ void running_slopes(NormBackward args, const float* scale, const float* shift, float* saved) {
  const int64_t channels = args.shape.channels;
  const RunningNorm norm{scale, shift, args.mean, args.var, args.epsilon};
  for (int64_t c = thread_index(); c < channels; c += grid_threads()) {
    saved[c] = norm.of(c).factor;
    saved[channels + c] = shift[c];
  }
}

template <class T>
__device__ void put_vectors(const NormVectors& v, int64_t c, double mean, double variance) {
  const double inverse = 1 / sqrt(variance + v.epsilon), factor = v.scale[c] * inverse;
  v.mean[c] = static_cast<float>(mean);
  v.var[c] = static_cast<float>(variance);
  v.inverse[c] = static_cast<float>(inverse);
  v.factor[c] = static_cast<float>(factor);
  // The offset makes up for the rounding of the slope where the image has its mean.
  const T slope = from_float<T>(static_cast<float>(factor));
  static_cast<T*>(v.slope)[c] = slope;
  static_cast<T*>(v.offset)[c] = from_float<T>(static_cast<float>(v.shift[c] - mean * to_float(slope)));
  kernels::moment_terms(v.samples, v.mean[c], v.var[c], v.running_mean[c], v.first[c], v.second[c]);
}

template <class T>
__global__ void norm_of_sums(ChannelSums sums, NormVectors vectors) {
  for (int64_t c = thread_index(); c < sums.channels; c += grid_threads()) {
    const double mean = sums.sum[c] / sums.values;
    put_vectors<T>(vectors, c, mean, kernels::relu(sums.squares[c] / sums.values - mean * mean));
  }
}

template <class T>
struct VectorsFinish {
  const T* x;
  NormVectors vectors;
  double count;

  __device__ void operator()(int64_t channel, double first, double second) const {
    const double distance = first / count;
    put_vectors<T>(vectors, channel, to_float(x[channel]) + distance,
                   kernels::relu(second / count - distance * distance));
  }
};

// Of PooledTerms.
struct PooledFinish {
  GradientFinish finish;
  __device__ void operator()(int64_t channel, double first, double second) const {
    finish(channel, first, second / finish.factors[channel]);
  }
};

__global__ void moments(MomentTerms t) {
  for (int64_t c = thread_index(); c < t.channels; c += grid_threads()) {
    kernels::moment_terms(t.samples, t.mean[c], t.var[c], t.running_mean[c], t.first[c], t.second[c]);
  }
}

// Batch norm over the samples of all ranks. Sums of d = x - running_mean and of d^2, from those of the distances from
// the channel's first value.
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

__global__ void statistics_of_sums(NormForward args, JointSums joint, NormStatistics statistics) {
  const int64_t channels = args.shape.channels;
  for (int64_t c = thread_index(); c < channels; c += grid_threads()) {
    const double distance = joint.sums[c] / joint.values;
    const double variance = kernels::relu(joint.sums[channels + c] / joint.values - distance * distance);
    statistics.mean[c] = static_cast<float>(joint.running_mean[c] + distance);
    statistics.var[c] = static_cast<float>(variance);
    statistics.saved[c] = static_cast<float>(args.scale[c] / sqrt(variance + args.epsilon));
    statistics.saved[channels + c] = args.shift[c];
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

__global__ void coefficients_of_sums(NormBackward args, JointGradient joint) {
  const int64_t channels = args.shape.channels;
  const double epsilon = args.epsilon;
  for (int64_t c = thread_index(); c < channels; c += grid_threads()) {
    const double factor = args.factor[c] / joint.values;
    joint.coefficients[c] = static_cast<float>(factor * joint.sums[c] / sqrt(args.var[c] + epsilon));
    joint.coefficients[channels + c] = static_cast<float>(factor * joint.sums[channels + c]);
  }
}

// The maximum of what is normalized.
template <class T, int kLanes>
__global__ void norm_max_pool(PoolShape s, SavedNorm source, const T* x, T* y, uint8_t* saved) {
  for (int64_t i = thread_index(); i < s.out_items; i += grid_threads()) {
    const Item out = item_of(static_cast<unsigned>(i), s.packs, s.out_h, s.out_w);
    const auto norms = norms_at<kLanes>(source, int64_t{out.pack} * kLanes);
    const auto best = maxima_of<kLanes>(
        s, out, x, [&](float value, int lane) { return kernels::relu(kernels::normalized(value, norms.lane[lane])); });
    store<kLanes>(best.values, y + out_offset(s, out) * kLanes);
    *reinterpret_cast<Pack<uint8_t, kLanes>*>(saved + i * kLanes) = best.positions;
  }
}

GradientFinish finish_of(const NormBackward& args, const NormGradients& gradients, const NormScratch& scratch) {
  return {args.var,    args.factor,  gradients.dscale,   gradients.dshift, scratch.coefficients,
          args.values, args.epsilon, args.shape.channels};
}

template <class T, int kLanes, class Gradient>
void apply_gradient(cudaStream_t stream, const NormBackward& args, const Gradient& dy, const float* coefficients,
                    RowsOut dx) {
  const SavedNorm norm{args.mean, args.factor, args.shift};
  launch_map_rows<kLanes>(
      stream, args.shape,
      ApplyGradient<T, Gradient>{
          {norm, args.relu, image_in<T>(args.x), dy, image_out<T>(dx)}, coefficients, args.shape.channels});
}

template <class T, int kLanes, class Gradient>
void launch_gradient(cudaStream_t stream, const NormBackward& args, const Gradient& dy, const NormGradients& gradients,
                     const NormScratch& scratch) {
  const SavedNorm norm{args.mean, args.factor, args.shift};
  const GradientTerms<T, Gradient> terms{norm, args.relu, image_in<T>(args.x), dy};
  launch_sum_rows<kLanes>(stream, args.shape, terms, finish_of(args, gradients, scratch), scratch.sums);
  apply_gradient<T, kLanes>(stream, args, dy, scratch.coefficients, gradients.dx);
}

}  // namespace

void launch_norm(cudaStream_t stream, DType dtype, const NormForward& args, const NormStatistics& statistics,
                 const SumsMemory& memory) {
  const int64_t channels = args.shape.channels;
  with_packs(dtype, common_granule(dtype, channels, {args.x, args.y}), [&](auto element, auto lanes) {
    using T = decltype(element);
    constexpr int kLanes = decltype(lanes)::value;
    const auto x = image_in<T>(args.x);
    const auto [mean, var, saved] = statistics;
    const BatchFinish<T> finish{
        x.data, args.scale, args.shift, mean, var, saved, static_cast<double>(args.shape.rows), args.epsilon, channels};
    launch_sum_rows<kLanes>(stream, args.shape, BatchTerms<T>{x}, finish, memory);
    launch_map_rows<kLanes>(
        stream, args.shape,
        Normalize<T, SavedNorm>{{mean, saved, saved + channels}, args.relu, x, image_out<T>(args.y)});
  });
}

void launch_norm_grad(cudaStream_t stream, DType dtype, const NormBackward& args, const NormGradients& gradients,
                      const NormScratch& scratch) {
  const int64_t granule = common_granule(dtype, args.shape.channels, {args.x, args.dy, gradients.dx});
  with_packs(dtype, granule, [&](auto element, auto lanes) {
    using T = decltype(element);
    launch_gradient<T, decltype(lanes)::value>(stream, args, ImageGradient<T>{image_in<T>(args.dy)}, gradients,
                                               scratch);
  });
}

void launch_norm_max_pool(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const NormPool& args) {
  with_packs(dtype, common_granule(dtype, pool.image.c(), {args.x, args.y}), [&](auto element, auto lanes) {
    using T = decltype(element);
    constexpr int kLanes = decltype(lanes)::value;
    const PoolShape s = pool_shape(pool, kLanes, args.x, args.y);
    norm_max_pool<T, kLanes><<<blocks_for(s.out_items), kThreads, 0, stream>>>(
        s, SavedNorm{args.mean, args.factor, args.shift}, static_cast<const T*>(args.x.data),
        static_cast<T*>(args.y.data), args.saved);
  });
}

void launch_norm_max_pool_grad(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const PooledImage& pooled,
                               const NormBackward& args, const NormGradients& gradients, const NormScratch& scratch) {
  const RowsIn y = pooled.y.data ? pooled.y : args.dy;
  const int64_t granule = common_granule(dtype, args.shape.channels, {args.x, args.dy, gradients.dx, y});
  with_packs(dtype, granule, [&](auto element, auto lanes) {
    using T = decltype(element);
    constexpr int kLanes = decltype(lanes)::value;
    const PooledGradient<T> dy{pool_shape(pool, kLanes, args.x, args.dy), static_cast<const T*>(args.dy.data),
                               pooled.saved};
    if (!pooled.y.data) return launch_gradient<T, kLanes>(stream, args, dy, gradients, scratch);
    const Rows shape{pool.out.n() * pool.out.h() * pool.out.w(), args.shape.channels};
    const PooledTerms<T> terms{args.shift, image_in<T>(y), image_in<T>(args.dy)};
    launch_sum_rows<kLanes>(stream, shape, terms, PooledFinish{finish_of(args, gradients, scratch)}, scratch.sums);
    apply_gradient<T, kLanes>(stream, args, dy, scratch.coefficients, gradients.dx);
  });
}

void launch_norm_inference(cudaStream_t stream, DType dtype, const NormForward& args,
                           const RunningStatistics& running) {
  const int64_t granule = common_granule(dtype, args.shape.channels, {args.x, args.y});
  with_packs(dtype, granule, [&](auto element, auto lanes) {
    using T = decltype(element);
    const RunningNorm norm{args.scale, args.shift, running.mean, running.var, args.epsilon};
    launch_map_rows<decltype(lanes)::value>(
        stream, args.shape, Normalize<T, RunningNorm>{norm, args.relu, image_in<T>(args.x), image_out<T>(args.y)});
  });
}

void launch_running_slopes(cudaStream_t stream, const NormBackward& args, const float* scale, const float* shift,
                           float* saved) {
  running_slopes<<<blocks_for(args.shape.channels), kThreads, 0, stream>>>(args, scale, shift, saved);
}

void launch_norm_of_sums(cudaStream_t stream, DType dtype, const ChannelSums& sums, const NormVectors& vectors) {
  with_element(dtype, [&](auto element) {
    norm_of_sums<decltype(element)><<<blocks_for(sums.channels), kThreads, 0, stream>>>(sums, vectors);
  });
}

void launch_norm_statistics(cudaStream_t stream, DType dtype, Rows shape, RowsIn x, const NormVectors& vectors,
                            const SumsMemory& memory) {
  with_packs(dtype, common_granule(dtype, shape.channels, {x}), [&](auto element, auto lanes) {
    using T = decltype(element);
    const auto image = image_in<T>(x);
    const VectorsFinish<T> finish{image.data, vectors, static_cast<double>(shape.rows)};
    launch_sum_rows<decltype(lanes)::value>(stream, shape, BatchTerms<T>{image}, finish, memory);
  });
}

void launch_avg_pool_statistics(cudaStream_t stream, DType dtype, const PoolLaunch& pool, RowsIn x, RowsOut y,
                                const NormVectors& vectors, const SumsMemory& memory) {
  with_packs(dtype, common_granule(dtype, pool.image.c(), {x, y}), [&](auto element, auto lanes) {
    using T = decltype(element);
    constexpr int kLanes = decltype(lanes)::value;
    const Rows shape{pool.out.n() * pool.out.h() * pool.out.w(), pool.out.c()};
    const auto image = image_in<T>(x);
    const AveragedTerms<T> terms{{image}, pool_shape(pool, kLanes, x, y), image_out<T>(y)};
    launch_sum_rows<kLanes>(stream, shape, terms,
                            VectorsFinish<T>{image.data, vectors, static_cast<double>(shape.rows)}, memory);
  });
}

void launch_norm_grad_apply(cudaStream_t stream, DType dtype, const CoefficientGradient& args) {
  const int64_t granule = common_granule(dtype, args.shape.channels, {args.dz, args.x, args.dx});
  with_packs(dtype, granule, [&](auto element, auto lanes) {
    using T = decltype(element);
    launch_map_rows<decltype(lanes)::value>(
        stream, args.shape,
        GradientOfCoefficients<T>{image_in<T>(args.x), image_in<T>(args.dz), args.by_dz, args.by_x, args.constant,
                                  image_out<T>(args.dx)});
  });
}

void launch_moments(cudaStream_t stream, const MomentTerms& terms) {
  moments<<<blocks_for(terms.channels), kThreads, 0, stream>>>(terms);
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

void launch_sync_norm(cudaStream_t stream, DType dtype, const NormForward& args, const JointSums& joint,
                      const NormStatistics& statistics) {
  const int64_t channels = args.shape.channels;
  statistics_of_sums<<<blocks_for(channels), kThreads, 0, stream>>>(args, joint, statistics);
  with_packs(dtype, common_granule(dtype, channels, {args.x, args.y}), [&](auto element, auto lanes) {
    using T = decltype(element);
    const SavedNorm norm{statistics.mean, statistics.saved, statistics.saved + channels};
    launch_map_rows<decltype(lanes)::value>(
        stream, args.shape, Normalize<T, SavedNorm>{norm, args.relu, image_in<T>(args.x), image_out<T>(args.y)});
  });
}

void launch_sync_norm_grad_sums(cudaStream_t stream, DType dtype, const NormBackward& args, const GradientSums& own,
                                const SumsMemory& memory) {
  const int64_t channels = args.shape.channels;
  with_packs(dtype, common_granule(dtype, channels, {args.x, args.dy}), [&](auto element, auto lanes) {
    using T = decltype(element);
    const SavedNorm norm{args.mean, args.factor, args.shift};
    const GradientSumsFinish finish{args.var, own.dscale, own.dshift, own.sums, args.epsilon, channels};
    launch_sum_rows<decltype(lanes)::value>(
        stream, args.shape,
        GradientTerms<T, ImageGradient<T>>{norm, args.relu, image_in<T>(args.x), {image_in<T>(args.dy)}}, finish,
        memory);
  });
}

void launch_sync_norm_grad(cudaStream_t stream, DType dtype, const NormBackward& args, const JointGradient& joint) {
  const int64_t channels = args.shape.channels;
  coefficients_of_sums<<<blocks_for(channels), kThreads, 0, stream>>>(args, joint);
  with_packs(dtype, common_granule(dtype, channels, {args.x, args.dy, joint.dx}), [&](auto element, auto lanes) {
    using T = decltype(element);
    apply_gradient<T, decltype(lanes)::value>(stream, args, ImageGradient<T>{image_in<T>(args.dy)}, joint.coefficients,
                                              joint.dx);
  });
}

}  // namespace lockstep::cuda
