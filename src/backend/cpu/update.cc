// The parameter update over flat arenas (update.h has the formulas), cut into pieces of fixed size, so that results do
// not depend on the number of threads.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/loops.h"
#include "backend/kernels/functors.h"
#include "backend/optimizer_rules.h"
#include "backend/step_rules.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/half.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kPiece = 16384;  // elements

using Constants = kernels::OptimizerConstants<float>;
using Segment = kernels::SegmentConstants<float>;

// The same piece of every arena, within one segment.
struct OptimizerArrays {
  const float* gradients;
  float *values, *slot0, *slot1;
  int64_t count;
};

template <class Rule>
LOCKSTEP_VECTORIZED void update(const Constants& of_step, const Segment& of_segment, const OptimizerArrays& arrays) {
  const auto [gradients, values, slot0, slot1, count] = arrays;
  const Constants constants = of_step;  // copies, which the arrays cannot alias
  const Segment segment = of_segment;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    kernels::OptimizerElement<float> e{constants.gradient_scale * gradients[i], values[i], slot0[i], 0};
    if constexpr (Rule::kSlots > 1) e.slot1 = slot1[i];
    Rule::apply(constants, segment, e);
    values[i] = e.value;
    slot0[i] = e.slot0;
    if constexpr (Rule::kSlots > 1) slot1[i] = e.slot1;
  }
}

LOCKSTEP_VECTORIZED void update_averages(const float* values, float weight, float* averages, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) averages[i] = kernels::ema(averages[i], values[i], weight);
}

LOCKSTEP_VECTORIZED void add_to(const float* values, float* sums, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) sums[i] += values[i];
}

LOCKSTEP_VECTORIZED double sum_of_squares(const float* values, int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

// Part of a segment.
struct Piece {
  int64_t offset = 0, count = 0;
  size_t segment = 0;
};

std::vector<Piece> pieces_of(const std::vector<UpdateSegment>& segments) {
  std::vector<Piece> pieces;
  for (size_t s = 0; s < segments.size(); ++s) {
    for (int64_t done = 0; done < segments[s].count; done += kPiece) {
      pieces.push_back({segments[s].offset + done, std::min(kPiece, segments[s].count - done), s});
    }
  }
  return pieces;
}

// The update of the whole arena. Its workspace holds each segment's rate factor and, for adaptive ones, the sums of
// squares of each piece.
class OptimizerKernel final : public Kernel {
 public:
  OptimizerKernel(const ApplyOptimizer& op, int threads)
      : op_(op),
        pieces_(pieces_of(op.segments)),
        adaptive_(std::ranges::any_of(op.segments, &UpdateSegment::adaptive)),
        threads_(threads) {}

  void run(const KernelArgs& args) const override {
    if (input(args, 1)[kSkip] != 0) return;
    const Constants constants(op_, input(args, 1));
    auto* squares = static_cast<kernels::SegmentSquares*>(args.workspace);
    auto* trust = reinterpret_cast<float*>(squares + pieces_.size());
    if (adaptive_) find_trust(args, squares, trust);
    kernels::with_rule(op_, [&]<class Rule>(Rule) {
      for_each_piece([&](size_t i) {
        const Piece& piece = pieces_[i];
        const int64_t at = piece.offset;
        const UpdateSegment& of = op_.segments[piece.segment];
        const Segment segment{static_cast<float>(of.weight_decay), adaptive_ ? trust[piece.segment] : 1};
        update<Rule>(constants.with_rate_factor(static_cast<float>(of.rate_factor)), segment,
                     {input(args, 0) + at, output(args, 0) + at, output(args, 1) + at,
                      Rule::kSlots > 1 ? output(args, 2) + at : nullptr, piece.count});
      });
    });
  }
  size_t workspace_bytes() const override {
    if (!adaptive_) return 0;
    return pieces_.size() * sizeof(kernels::SegmentSquares) + op_.segments.size() * sizeof(float);
  }
  std::string implementation() const override { return "loops"; }

 private:
  template <class Body>
  void for_each_piece(const Body& body) const {
    parallel_ranges(threads_, static_cast<int64_t>(pieces_.size()), 1, [&](Range range, int) {
      for (int64_t i = range.begin; i < range.end; ++i) body(i);
    });
  }

  void find_trust(const KernelArgs& args, kernels::SegmentSquares* squares, float* trust) const {
    for_each_piece([&](size_t i) {
      const Piece& piece = pieces_[i];
      squares[i] = {};
      if (!op_.segments[piece.segment].adaptive) return;
      squares[i] = {.values = sum_of_squares(output(args, 0) + piece.offset, piece.count),
                    .gradients = sum_of_squares(input(args, 0) + piece.offset, piece.count)};
    });
    const double scale = input(args, 1)[kGradientScale];
    size_t piece = 0;  // pieces are in the order of their segments
    for (size_t s = 0; s < op_.segments.size(); ++s) {
      kernels::SegmentSquares sums;
      for (; piece < pieces_.size() && pieces_[piece].segment == s; ++piece) {
        sums.values += squares[piece].values;
        sums.gradients += squares[piece].gradients;
      }
      const UpdateSegment& segment = op_.segments[s];
      const double factor = kernels::lars_trust({op_.trust, segment.weight_decay, scale}, sums);
      trust[s] = segment.adaptive ? static_cast<float>(factor) : 1;
    }
  }

  ApplyOptimizer op_;
  std::vector<Piece> pieces_;
  bool adaptive_;
  int threads_;
};

std::unique_ptr<Kernel> compile_update(const Context& context, const ApplyOptimizer& op) {
  require(op.copies.empty(), "copies of weights on a CPU");
  return std::make_unique<OptimizerKernel>(op, context.threads);
}

std::unique_ptr<Kernel> compile_update(const Context& context, const ApplyAverage& op) {
  return make_loop_kernel([op, threads = context.threads](const KernelArgs& args) {
    if (input(args, 1)[kSkip] != 0) return;
    const float weight = 1 - input(args, 1)[kAverageDecay];
    parallel_ranges(threads, op.count, kPiece, [&](Range range, int) {
      update_averages(input(args, 0) + range.begin, weight, output(args, 0) + range.begin, range.size());
    });
  });
}

// There are a few thousand channels, which are not worth a second thread.
std::unique_ptr<Kernel> compile_update(const Context&, const ApplyStatistics& op) {
  return make_loop_kernel([op](const KernelArgs& args) {
    if (input(args, 1)[kSkip] != 0) return;
    const float* moments = input(args, 0);
    float* statistics = output(args, 0);
    const double samples = input(args, 1)[kSampleCount];
    for (const ApplyStatistics::Entry& entry : op.entries) {
      const StatisticsRule rule{samples, samples * static_cast<double>(entry.spatial), op.momentum};
      for (int64_t c = 0; c < entry.channels; ++c) {
        const int64_t mean = entry.mean_offset + c, var = entry.var_offset + c;
        update_running_stats(rule, moments[mean], moments[var], statistics[mean], statistics[var]);
      }
    }
  });
}

std::unique_ptr<Kernel> compile_update(const Context& context, const SumOfSquares& op) {
  const int64_t pieces = (op.count + kPiece - 1) / kPiece;
  const auto body = [op, pieces, threads = context.threads](const KernelArgs& args) {
    auto* sums = static_cast<double*>(args.workspace);
    parallel_ranges(threads, pieces, 1, [&](Range range, int) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        sums[i] = sum_of_squares(input(args, 0) + i * kPiece, std::min(kPiece, op.count - i * kPiece));
      }
    });
    double total = 0;
    for (int64_t i = 0; i < pieces; ++i) total += sums[i];
    output<double>(args, 0)[0] = total;
  };
  return make_loop_kernel(body, pieces * sizeof(double));
}

std::unique_ptr<Kernel> compile_update(const Context& context, const AddToSums& op) {
  return make_loop_kernel([op, threads = context.threads](const KernelArgs& args) {
    parallel_ranges(threads, op.count, kPiece, [&](Range range, int) {
      add_to(input(args, 0) + range.begin, output(args, 0) + range.begin, range.size());
    });
  });
}

template <class T>
std::span<T> part(T* values, Range range) {
  return {values + range.begin, static_cast<size_t>(range.size())};
}

std::unique_ptr<Kernel> compile_update(const Context& context, const DowncastValues& op) {
  return make_loop_kernel([op, threads = context.threads](const KernelArgs& args) {
    parallel_ranges(threads, op.count, kPiece, [&](Range range, int) {
      to_half(op.to, part(input(args, 0), range), part(output<uint16_t>(args, 0), range));
    });
  });
}

std::unique_ptr<Kernel> compile_update(const Context& context, const UpcastValues& op) {
  return make_loop_kernel([op, threads = context.threads](const KernelArgs& args) {
    parallel_ranges(threads, op.count, kPiece, [&](Range range, int) {
      from_half(op.from, part(input<uint16_t>(args, 0), range), part(output(args, 0), range));
    });
  });
}

std::unique_ptr<Kernel> compile_update(const Context&, const FindNonFinite& op) {
  return make_loop_kernel([op](const KernelArgs& args) {
    if (std::isfinite(input<double>(args, 1)[0])) return;
    const float* const values = input(args, 0);
    const float* const bad = std::find_if(values, values + op.count, [](float x) { return !std::isfinite(x); });
    if (bad != values + op.count) output<StepOutcome>(args, 0)->bad_gradient = static_cast<double>(bad - values);
  });
}

std::unique_ptr<Kernel> compile_update(const Context&, const FillStepHeader& op) {
  return make_loop_kernel([op](const KernelArgs& args) {
    float loss = 0;
    for (size_t i = 0; i < op.head_weights.size(); ++i) {
      loss += static_cast<float>(op.head_weights[i]) * input(args, 2 + i)[0];
    }
    fill_step_header(*input<StepControl>(args, 0), input<int32_t>(args, 1), loss, output(args, 0),
                     output<StepOutcome>(args, 1));
  });
}

std::unique_ptr<Kernel> compile_update(const Context&, const DecideUpdate& op) {
  return make_loop_kernel([rule = rule_of(op)](const KernelArgs& args) {
    decide_update<float>(rule, {.header = input(args, 0),
                                .squares = input<double>(args, 1)[0],
                                .control = *input<StepControl>(args, 2),
                                .scalars = output(args, 0),
                                .state = output<UpdateState>(args, 1),
                                .outcome = output<StepOutcome>(args, 2)});
  });
}

}  // namespace

std::unique_ptr<Kernel> compile(const Context& context, const UpdateOp& op) {
  return std::visit([&](const auto& o) { return compile_update(context, o); }, op.op);
}

}  // namespace lockstep::cpu
