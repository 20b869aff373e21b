// The parameter update over flat arenas (update.h has the formulas), cut into pieces of fixed size, so that results do
// not depend on the number of threads.
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/loops.h"
#include "backend/step_rules.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kPiece = 16384;  // elements

// One piece of every arena, all of one weight decay.
struct OptimizerArrays {
  const float* gradients;
  float *values, *slot0, *slot1;
  int64_t count;
};

// The step's scalars and the optimizer's constants in float.
struct Rule {
  float rate, gradient_scale, bias1, bias2;
  float momentum, decay, beta1, beta2, epsilon;
};

LOCKSTEP_VECTORIZED void sgd(const Rule& rule, float weight_decay, const OptimizerArrays& arrays) {
  const auto [gradients, values, slot0, slot1, count] = arrays;
  const Rule r = rule;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float momentum = r.momentum * slot0[i] + (r.gradient_scale * gradients[i] + weight_decay * values[i]);
    slot0[i] = momentum;
    values[i] -= r.rate * momentum;
  }
}

LOCKSTEP_VECTORIZED void rmsprop_tf(const Rule& rule, float weight_decay, const OptimizerArrays& arrays) {
  const auto [gradients, values, slot0, slot1, count] = arrays;
  const Rule r = rule;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = r.gradient_scale * gradients[i] + weight_decay * values[i];
    const float mean_square = slot0[i] + (1 - r.decay) * (gradient * gradient - slot0[i]);
    const float momentum = r.momentum * slot1[i] + r.rate * gradient / std::sqrt(mean_square + r.epsilon);
    slot0[i] = mean_square;
    slot1[i] = momentum;
    values[i] -= momentum;
  }
}

LOCKSTEP_VECTORIZED void adamw(const Rule& rule, float weight_decay, const OptimizerArrays& arrays) {
  const auto [gradients, values, slot0, slot1, count] = arrays;
  const Rule r = rule;
  const float keep = 1 - r.rate * weight_decay;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float gradient = r.gradient_scale * gradients[i];
    const float average = r.beta1 * slot0[i] + (1 - r.beta1) * gradient;
    const float square = r.beta2 * slot1[i] + (1 - r.beta2) * gradient * gradient;
    slot0[i] = average;
    slot1[i] = square;
    values[i] = keep * values[i] - r.rate * (average / r.bias1) / (std::sqrt(square / r.bias2) + r.epsilon);
  }
}

LOCKSTEP_VECTORIZED void move_averages(const float* values, float weight, float* averages, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) averages[i] += weight * (values[i] - averages[i]);
}

LOCKSTEP_VECTORIZED double sum_of_squares(const float* values, int64_t count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

Rule rule_of(const ApplyOptimizer& op, const float* scalars) {
  const auto f = [](double value) { return static_cast<float>(value); };
  return {.rate = scalars[kLearningRate],
          .gradient_scale = scalars[kGradientScale],
          .bias1 = scalars[kBias1],
          .bias2 = scalars[kBias2],
          .momentum = f(op.momentum),
          .decay = f(op.decay),
          .beta1 = f(op.beta1),
          .beta2 = f(op.beta2),
          .epsilon = f(op.epsilon)};
}

std::vector<UpdateSegment> pieces_of(const std::vector<UpdateSegment>& segments) {
  std::vector<UpdateSegment> pieces;
  for (const UpdateSegment& segment : segments) {
    for (int64_t done = 0; done < segment.count; done += kPiece) {
      pieces.push_back({segment.offset + done, std::min(kPiece, segment.count - done), segment.weight_decay});
    }
  }
  return pieces;
}

void apply(const ApplyOptimizer& op, const Rule& rule, const UpdateSegment& piece, const KernelArgs& args) {
  const int64_t at = piece.offset;
  const bool two_slots = args.outputs.size() > 2;
  const OptimizerArrays arrays{input(args, 0) + at, output(args, 0) + at, output(args, 1) + at,
                               two_slots ? output(args, 2) + at : nullptr, piece.count};
  const auto weight_decay = static_cast<float>(piece.weight_decay);
  switch (op.kind) {
    case OptimizerKind::sgd:
      sgd(rule, weight_decay, arrays);
      break;
    case OptimizerKind::rmsprop_tf:
      rmsprop_tf(rule, weight_decay, arrays);
      break;
    case OptimizerKind::adamw:
      adamw(rule, weight_decay, arrays);
      break;
  }
}

std::unique_ptr<Kernel> compile_update(const Context& context, const ApplyOptimizer& op) {
  return make_loop_kernel([op, pieces = pieces_of(op.segments), threads = context.threads](const KernelArgs& args) {
    if (input(args, 1)[kSkip] != 0) return;
    const Rule rule = rule_of(op, input(args, 1));
    parallel_ranges(threads, static_cast<int64_t>(pieces.size()), 1, [&](Range range, int) {
      for (int64_t i = range.begin; i < range.end; ++i) apply(op, rule, pieces[static_cast<size_t>(i)], args);
    });
  });
}

std::unique_ptr<Kernel> compile_update(const Context& context, const ApplyAverage& op) {
  return make_loop_kernel([op, threads = context.threads](const KernelArgs& args) {
    if (input(args, 1)[kSkip] != 0) return;
    const float weight = 1 - input(args, 1)[kAverageDecay];
    parallel_ranges(threads, op.count, kPiece, [&](Range range, int) {
      move_averages(input(args, 0) + range.begin, weight, output(args, 0) + range.begin, range.size());
    });
  });
}

// A few thousand channels: not worth a second thread.
std::unique_ptr<Kernel> compile_update(const Context&, const ApplyStatistics& op) {
  return make_loop_kernel([op](const KernelArgs& args) {
    if (input(args, 1)[kSkip] != 0) return;
    const float* moments = input(args, 0);
    float* statistics = output(args, 0);
    const double samples = input(args, 1)[kSampleCount];
    for (const ApplyStatistics::Entry& entry : op.entries) {
      const double count = samples * static_cast<double>(entry.spatial);
      for (int64_t c = 0; c < entry.channels; ++c) {
        float &mean = statistics[entry.mean_offset + c], &var = statistics[entry.var_offset + c];
        const double shift = moments[entry.mean_offset + c] / samples;
        const double biased = std::max(moments[entry.var_offset + c] / samples - shift * shift, 0.0);
        mean = static_cast<float>(mean + op.momentum * shift);
        var = static_cast<float>(var + op.momentum * (biased * count / (count - 1) - var));
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
  return make_loop_kernel(body, static_cast<size_t>(pieces) * sizeof(double));
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
