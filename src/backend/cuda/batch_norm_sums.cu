#include "backend/cuda/batch_norm.h"
#include "backend/cuda/batch_norm_terms.h"

namespace lockstep::cuda {
namespace {

// The sums of PooledTerms of the gradient of a max pool and other summands, which is written.
template <class T>
struct SummedTerms : PooledTerms<T> {
  static constexpr int kRowsInFlight = 1;
  PooledGradient<T> pooled;
  Summands<T> summands;
  Image<T> dx;

  template <int kLanes>
  __device__ RowAndGradient<T, kLanes> load(Location location) const {
    Pack<float, kLanes> sums = pooled.template load<kLanes>(location);
    add_summands<kLanes>(summands, location.row * (int64_t{pooled.pool.packs} * kLanes) + location.channel, sums.lane);
    RowAndGradient<T, kLanes> row{load_pack<T, kLanes>(this->y.at(location)), {}};
#pragma unroll
    for (int i = 0; i < kLanes; ++i) row.dy.lane[i] = from_float<T>(sums.lane[i]);
    store_pack<T, kLanes>(row.dy, dx.at(location));
    return row;
  }
};

template <int kLanes>
struct NormalizedCoefficients {
  Norms<kLanes> norms;
  float by_y[kLanes], constant[kLanes];
};

// dx = factor (dz + by_y u + constant), where u is what the norm makes of x.
template <class T, class Gradient>
struct GradientOfNormalized : GradientOfRows<T, Gradient> {
  static constexpr int kRowsInFlight = Gradient::kApplyRows, kBlocksOfProcessor = 2;
  const float *by_y, *constant;
  float share;  // multiplies both

  template <int kLanes>
  __device__ NormalizedCoefficients<kLanes> at(int64_t channel) const {
    NormalizedCoefficients<kLanes> all{norms_at<kLanes>(this->source, channel), {}, {}};
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      all.by_y[i] = share * by_y[channel + i];
      all.constant[i] = share * constant[channel + i];
    }
    return all;
  }
  template <int kLanes, class Loaded>
  __device__ void row(const NormalizedCoefficients<kLanes>& all, const Loaded& loaded, Location location) const {
    this->write(all.norms, loaded, location, [&](int i, float, float u, float g, const auto& norm) {
      return norm.factor * (g + (all.by_y[i] * u + all.constant[i]));
    });
  }
};

struct NormalizedFinish {
  const float* shift;
  float *dshift, *by_y, *constant;
  double count;

  __device__ void operator()(int64_t channel, double first, double second) const {
    dshift[channel] = static_cast<float>(first);
    by_y[channel] = static_cast<float>(-second / count);
    constant[channel] = static_cast<float>((shift[channel] * second - first) / count);
  }
};

NormalizedFinish finish_of(const NormalizedSums& args) {
  return {args.shift, args.dshift, args.by_y, args.constant, static_cast<double>(args.shape.rows)};
}

template <class T, int kLanes, class Gradient>
void apply_normalized(cudaStream_t stream, const NormalizedGradient& args, const Gradient& dy) {
  const SavedNorm norm{args.mean, args.factor, args.shift};
  launch_map_rows<kLanes>(
      stream, args.shape,
      GradientOfNormalized<T, Gradient>{
          {norm, args.relu, image_in<T>(args.x), dy, image_out<T>(args.dx)}, args.by_y, args.constant, args.share});
}

}  // namespace

void launch_norm_grad_sums(cudaStream_t stream, DType dtype, const NormalizedSums& args, const SumsMemory& memory) {
  with_packs(dtype, common_granule(dtype, args.shape.channels, {args.y, args.dy}), [&](auto element, auto lanes) {
    using T = decltype(element);
    const PooledTerms<T> terms{args.shift, image_in<T>(args.y), image_in<T>(args.dy)};
    launch_sum_rows<decltype(lanes)::value>(stream, args.shape, terms, finish_of(args), memory);
  });
}

void launch_max_pool_grad_norm_sums(cudaStream_t stream, DType dtype, const PoolLaunch& pool, RowsIn dy,
                                    const uint8_t* saved, const NormalizedSums& args, std::span<void* const> summands,
                                    RowsOut dx, const SumsMemory& memory) {
  with_packs(dtype, common_granule(dtype, args.shape.channels, {args.y, dy, dx}), [&](auto element, auto lanes) {
    using T = decltype(element);
    constexpr int kLanes = decltype(lanes)::value;
    const PooledGradient<T> pooled{pool_shape(pool, kLanes, dx, dy), static_cast<const T*>(dy.data), saved};
    const SummedTerms<T> terms{
        {args.shift, image_in<T>(args.y), {}}, pooled, summands_of<T>(summands), image_out<T>(dx)};
    launch_sum_rows<kLanes>(stream, args.shape, terms, finish_of(args), memory);
  });
}

void launch_norm_grad_of_sums(cudaStream_t stream, DType dtype, const NormalizedGradient& args) {
  const int64_t granule = common_granule(dtype, args.shape.channels, {args.x, args.dy, args.dx});
  with_packs(dtype, granule, [&](auto element, auto lanes) {
    using T = decltype(element);
    apply_normalized<T, decltype(lanes)::value>(stream, args, ImageGradient<T>{image_in<T>(args.dy)});
  });
}

void launch_norm_max_pool_grad_of_sums(cudaStream_t stream, DType dtype, const PoolLaunch& pool, const uint8_t* saved,
                                       const NormalizedGradient& args) {
  const int64_t granule = common_granule(dtype, args.shape.channels, {args.x, args.dy, args.dx});
  with_packs(dtype, granule, [&](auto element, auto lanes) {
    using T = decltype(element);
    constexpr int kLanes = decltype(lanes)::value;
    apply_normalized<T, kLanes>(
        stream, args,
        PooledGradient<T>{pool_shape(pool, kLanes, args.x, args.dy), static_cast<const T*>(args.dy.data), saved});
  });
}

}  // namespace lockstep::cuda
