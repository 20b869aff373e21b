#include "backend/cuda/update.h"

#include <cmath>

#include "backend/cuda/device.h"
#include "backend/kernels/functors.h"
#include "backend/optimizer_rules.h"
#include "backend/step_rules.h"

namespace lockstep::cuda {
namespace {

using Constants = kernels::OptimizerConstants<float>;

constexpr int kSumBlocks = 512;  // fixed, so that sums are always added in the same order

// The constants are known to the host; the scalars of the step lie on the device.
__device__ Constants with_scalars(Constants constants, const float* scalars) {
  constants.rate = scalars[kLearningRate];
  constants.gradient_scale = scalars[kGradientScale];
  constants.bias1 = scalars[kBias1];
  constants.bias2 = scalars[kBias2];
  return constants;
}

// Updates kLanes neighbours, of which values remain in `value`.
template <class Rule, int kLanes>
__device__ void update(const Constants& constants, const kernels::SegmentConstants<float>& own,
                       const OptimizerArrays& a, int64_t at, float (&value)[kLanes]) {
  float gradient[kLanes], slot0[kLanes], slot1[kLanes] = {};
  load<kLanes>(a.gradients + at, gradient);
  load<kLanes>(a.values + at, value);
  load<kLanes>(a.slot0 + at, slot0);
  if constexpr (Rule::kSlots > 1) load<kLanes>(a.slot1 + at, slot1);
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    kernels::OptimizerElement<float> e{constants.gradient_scale * gradient[i], value[i], slot0[i], slot1[i]};
    Rule::apply(constants, own, e);
    value[i] = e.value;
    slot0[i] = e.slot0;
    slot1[i] = e.slot1;
  }
  store<kLanes>(value, a.values + at);
  store<kLanes>(slot0, a.slot0 + at);
  if constexpr (Rule::kSlots > 1) store<kLanes>(slot1, a.slot1 + at);
}

// Writes the values of a piece, in the order of its copy.
template <int kLanes, class Copy>
__device__ void write_copy(const UpdatePiece& piece, const Copy* values, Copy* copy) {
  for (int i = static_cast<int>(threadIdx.x) * kLanes; i < piece.count; i += kThreads * kLanes) {
    const int channel = i % piece.channels, pixels = i / piece.channels;
    const int filter = pixels / piece.pixels, pixel = pixels % piece.pixels;
    Pack<Copy, kLanes> pack;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane)
      pack.lane[lane] = values[(filter * piece.channels + channel + lane) * piece.pixels + pixel];
    const int64_t to_pixel = pixels / piece.width * piece.to_width + pixels % piece.width;
    store_pack<Copy, kLanes>(pack, copy + to_pixel * piece.stored + channel);
  }
}

// One block for each piece; a thread has packs of four elements. A piece may begin and end within a pack, of which the
// other elements belong to other pieces. Copy: the type of the copies; float: there are none.
template <class Rule, class Copy>
__global__ void __launch_bounds__(kThreads)
    apply_optimizer(Constants host_constants, const UpdatePiece* pieces, OptimizerArrays a, const float* trust) {
  constexpr bool kCopies = !std::is_same_v<Copy, float>;
  constexpr int kLanes = kWidest<float>;
  __shared__ alignas(16) Copy values[kCopies ? kPieceElements + kLanes : 1];  // from the first pack on
  if (a.scalars[kSkip] != 0) return;
  const UpdatePiece piece = pieces[blockIdx.x];
  const Constants constants = with_scalars(host_constants, a.scalars).with_rate_factor(piece.rate_factor);
  const kernels::SegmentConstants<float> own{piece.weight_decay, trust ? trust[piece.segment] : 1};
  const int64_t first_pack = piece.offset / kLanes * kLanes, end = piece.offset + piece.count;
  for (int64_t at = first_pack + threadIdx.x * kLanes; at < end; at += kThreads * kLanes) {
    if (at >= piece.offset && at + kLanes <= end) {
      float value[kLanes];
      update<Rule>(constants, own, a, at, value);
      if constexpr (kCopies) store<kLanes>(value, values + (at - first_pack));
      continue;
    }
    for (int64_t i = max(at, piece.offset); i < min(at + kLanes, end); ++i) {
      float value[1];
      update<Rule>(constants, own, a, i, value);
      if constexpr (kCopies) store<1>(value, values + (i - first_pack));
    }
  }
  if constexpr (kCopies) {
    if (piece.copy < 0) return;
    __syncthreads();
    const Copy* const from = values + (piece.offset - first_pack);
    Copy* const copy = static_cast<Copy*>(a.copies) + piece.copy;
    constexpr int kWide = kWidest<Copy>;
    if (piece.channels % kWide == 0 && piece.stored % kWide == 0 && piece.copy % kWide == 0) {
      write_copy<kWide>(piece, from, copy);
    } else {
      write_copy<1>(piece, from, copy);
    }
  }
}

// The sum of one double of each thread of the block, in a fixed order; valid at thread 0.
__device__ double sum_block(double value) {
  __shared__ double shared[kThreads];
  shared[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  const double sum = shared[0];
  __syncthreads();
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    piece_squares(const UpdatePiece* pieces, const float* values, const float* gradients, double* sums) {
  const UpdatePiece piece = pieces[blockIdx.x];
  if (piece.adaptive == 0) return;
  double of_values = 0, of_gradients = 0;
  for (int64_t i = piece.offset + threadIdx.x; i < piece.offset + piece.count; i += kThreads) {
    of_values += double{values[i]} * values[i];
    of_gradients += double{gradients[i]} * gradients[i];
  }
  of_values = sum_block(of_values);
  of_gradients = sum_block(of_gradients);
  if (threadIdx.x > 0) return;
  sums[2 * int64_t{blockIdx.x}] = of_values;
  sums[2 * int64_t{blockIdx.x} + 1] = of_gradients;
}

__global__ void segment_trust(double trust, OptimizerTables tables, const float* scalars, const double* sums,
                              float* factors) {
  const int64_t segment = thread_index();
  if (segment >= tables.segment_count) return;
  const UpdateSpan span = tables.spans[segment];
  const UpdatePiece first = tables.pieces[span.first];
  factors[segment] = 1;
  if (first.adaptive == 0) return;
  kernels::SegmentSquares squares;
  for (int64_t piece = span.first; piece < span.end; ++piece) {
    squares.values += sums[2 * piece];
    squares.gradients += sums[2 * piece + 1];
  }
  factors[segment] = static_cast<float>(
      kernels::lars_trust({trust, double{first.weight_decay}, double{scalars[kGradientScale]}}, squares));
}

__global__ void apply_average(int64_t count, const float* values, const float* scalars, float* averages) {
  if (scalars[kSkip] != 0) return;
  constexpr int kLanes = kWidest<float>;
  const float weight = 1 - scalars[kAverageDecay];
  const int64_t packs = count / kLanes;
  for (int64_t i = thread_index(); i < packs; i += grid_threads()) {
    float value[kLanes], average[kLanes];
    load<kLanes>(values + i * kLanes, value);
    load<kLanes>(averages + i * kLanes, average);
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) average[lane] = kernels::ema(average[lane], value[lane], weight);
    store<kLanes>(average, averages + i * kLanes);
  }
  const int64_t rest = packs * kLanes + thread_index();
  if (rest < count) averages[rest] = kernels::ema(averages[rest], values[rest], weight);
}

// One block for each batch norm.
__global__ void apply_statistics(StatisticsTable table, const float* moments, const float* scalars, float* statistics) {
  if (scalars[kSkip] != 0) return;
  const ApplyStatistics::Entry entry = table.entries[blockIdx.x];
  const double samples = scalars[kSampleCount];
  const StatisticsRule rule{samples, samples * static_cast<double>(entry.spatial), table.momentum};
  for (int64_t c = threadIdx.x; c < entry.channels; c += blockDim.x) {
    const int64_t mean = entry.mean_offset + c, var = entry.var_offset + c;
    update_running_stats(rule, moments[mean], moments[var], statistics[mean], statistics[var]);
  }
}

__global__ void __launch_bounds__(kThreads) partial_squares(int64_t count, const float* values, double* partial) {
  double sum = 0;
  for (int64_t i = thread_index(); i < count; i += grid_threads()) sum += double{values[i]} * values[i];
  sum = sum_block(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kThreads) add_partial(const double* partial, double* result) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < kSumBlocks; i += kThreads) sum += partial[i];
  sum = sum_block(sum);
  if (threadIdx.x == 0) *result = sum;
}

// One block, which reads no gradient in a step whose gradients are finite.
__global__ void __launch_bounds__(kThreads)
    find_non_finite(int64_t count, const float* values, const double* squares, StepOutcome* outcome) {
  if (isfinite(*squares)) return;
  __shared__ int64_t first[kThreads];
  int64_t mine = count;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) {
    if (isfinite(values[i])) continue;
    mine = i;
    break;
  }
  first[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x > 0) return;
  for (int thread = 1; thread < kThreads; ++thread) mine = first[thread] < mine ? first[thread] : mine;
  if (mine < count) outcome->bad_gradient = static_cast<double>(mine);
}

__global__ void pack_header(HeadLosses heads, const StepControl* control, const int32_t* correct, float* header,
                            StepOutcome* outcome) {
  float loss = 0;
  for (int i = 0; i < heads.count; ++i) loss += static_cast<float>(heads.weight[i]) * *heads.loss[i];
  fill_step_header(*control, correct, loss, header, outcome);
}

__global__ void decide(DecideRule rule, DecideArrays a) {
  decide_update<float>(rule, {a.header, *a.squares, *a.control, a.scalars, a.state, a.outcome});
}

}  // namespace

void launch_optimizer(cudaStream_t stream, const ApplyOptimizer& op, const OptimizerTables& tables,
                      const OptimizerArrays& arrays, DType copies, const float* trust) {
  constexpr float kLater[kUpdateScalars] = {};
  const Constants constants(op, kLater);
  kernels::with_rule(op, [&](auto rule) {
    with_element(copies, [&](auto copy) {
      apply_optimizer<decltype(rule), decltype(copy)>
          <<<static_cast<unsigned>(tables.piece_count), kThreads, 0, stream>>>(constants, tables.pieces, arrays, trust);
    });
  });
}

void launch_trust(cudaStream_t stream, const ApplyOptimizer& op, const OptimizerTables& tables,
                  const OptimizerArrays& arrays, double* workspace, float* trust) {
  piece_squares<<<static_cast<unsigned>(tables.piece_count), kThreads, 0, stream>>>(tables.pieces, arrays.values,
                                                                                    arrays.gradients, workspace);
  segment_trust<<<blocks_for(tables.segment_count), kThreads, 0, stream>>>(op.trust, tables, arrays.scalars, workspace,
                                                                           trust);
}

void launch_average(cudaStream_t stream, int64_t count, const float* values, const float* scalars, float* averages) {
  apply_average<<<blocks_for(count / kWidest<float>), kThreads, 0, stream>>>(count, values, scalars, averages);
}

void launch_statistics(cudaStream_t stream, const StatisticsTable& table, const float* moments, const float* scalars,
                       float* statistics) {
  if (table.count == 0) return;
  apply_statistics<<<static_cast<unsigned>(table.count), kThreads, 0, stream>>>(table, moments, scalars, statistics);
}

size_t sum_of_squares_bytes() { return kSumBlocks * sizeof(double); }

void launch_sum_of_squares(cudaStream_t stream, int64_t count, const float* values, double* result, void* workspace) {
  auto* partial = static_cast<double*>(workspace);
  partial_squares<<<kSumBlocks, kThreads, 0, stream>>>(count, values, partial);
  add_partial<<<1, kThreads, 0, stream>>>(partial, result);
}

void launch_find_non_finite(cudaStream_t stream, int64_t count, const float* values, const double* squares,
                            StepOutcome* outcome) {
  find_non_finite<<<1, kThreads, 0, stream>>>(count, values, squares, outcome);
}

void launch_fill_step_header(cudaStream_t stream, const HeadLosses& heads, const StepControl* control,
                             const int32_t* correct, float* header, StepOutcome* outcome) {
  pack_header<<<1, 1, 0, stream>>>(heads, control, correct, header, outcome);
}

void launch_decide_update(cudaStream_t stream, const DecideUpdate& op, const DecideArrays& arrays) {
  decide<<<1, 1, 0, stream>>>(rule_of(op), arrays);
}

}  // namespace lockstep::cuda
