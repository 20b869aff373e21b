// The optimizers' formulas (update.h), once for all backends: the update of one element in the arithmetic of V, double
// in the reference backend, float or a vector of them elsewhere. S is V's scalar type.
#pragma once

#include <algorithm>
#include <cmath>

#include "backend/step_rules.h"
#include "lockstep/backend/update.h"

namespace lockstep::kernels {

// The constants of one update. Differences from 1 are computed in double: 1 - 0.999F is off by 1e-5.
template <class S>
struct OptimizerConstants {
  S rate, gradient_scale, bias1, bias2;
  S momentum, decay, one_minus_decay, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, l1, twice_l2, power;

  template <class T>
  OptimizerConstants(const ApplyOptimizer& op, const T* scalars)
      : rate(static_cast<S>(scalars[kLearningRate])),
        gradient_scale(static_cast<S>(scalars[kGradientScale])),
        bias1(static_cast<S>(scalars[kBias1])),
        bias2(static_cast<S>(scalars[kBias2])),
        momentum(static_cast<S>(op.momentum)),
        decay(static_cast<S>(op.decay)),
        one_minus_decay(static_cast<S>(1 - op.decay)),
        beta1(static_cast<S>(op.beta1)),
        one_minus_beta1(static_cast<S>(1 - op.beta1)),
        beta2(static_cast<S>(op.beta2)),
        one_minus_beta2(static_cast<S>(1 - op.beta2)),
        epsilon(static_cast<S>(op.epsilon)),
        l1(static_cast<S>(op.l1)),
        twice_l2(static_cast<S>(2 * op.l2)),
        power(static_cast<S>(-op.learning_rate_power)) {}

  // The constants of a segment whose learning rate is multiplied by `factor`.
  LOCKSTEP_HOST_DEVICE OptimizerConstants with_rate_factor(S factor) const {
    OptimizerConstants own = *this;
    own.rate *= factor;
    return own;
  }
};

// The factors of one segment: its weight decay and, for lars, the trust ratio by which its rate is multiplied.
template <class S>
struct SegmentConstants {
  S weight_decay = 0;
  S trust = 1;
};

template <class V>
struct OptimizerElement {
  V gradient;  // summed over ranks, times the gradient scale
  V value, slot0, slot1;
};

struct SgdRule {
  static constexpr int kSlots = 1;
  template <class S, class V>
  LOCKSTEP_HOST_DEVICE static void apply(const OptimizerConstants<S>& c, const SegmentConstants<S>& segment,
                                         OptimizerElement<V>& e) {
    e.slot0 = c.momentum * e.slot0 + (e.gradient + segment.weight_decay * e.value);
    e.value -= c.rate * e.slot0;
  }
};

struct NesterovRule {
  static constexpr int kSlots = 1;
  template <class S, class V>
  LOCKSTEP_HOST_DEVICE static void apply(const OptimizerConstants<S>& c, const SegmentConstants<S>& segment,
                                         OptimizerElement<V>& e) {
    const V gradient = e.gradient + segment.weight_decay * e.value;
    e.slot0 = c.momentum * e.slot0 + gradient;
    e.value -= c.rate * (gradient + c.momentum * e.slot0);
  }
};

struct RmspropTfRule {
  static constexpr int kSlots = 2;
  template <class S, class V>
  LOCKSTEP_HOST_DEVICE static void apply(const OptimizerConstants<S>& c, const SegmentConstants<S>& segment,
                                         OptimizerElement<V>& e) {
    using std::sqrt;
    const V gradient = e.gradient + segment.weight_decay * e.value;
    e.slot0 += c.one_minus_decay * (gradient * gradient - e.slot0);
    e.slot1 = c.momentum * e.slot1 + c.rate * gradient / sqrt(e.slot0 + c.epsilon);
    e.value -= e.slot1;
  }
};

struct RmspropRule {
  static constexpr int kSlots = 2;
  template <class S, class V>
  LOCKSTEP_HOST_DEVICE static void apply(const OptimizerConstants<S>& c, const SegmentConstants<S>& segment,
                                         OptimizerElement<V>& e) {
    using std::sqrt;
    const V gradient = e.gradient + segment.weight_decay * e.value;
    e.slot0 = c.decay * e.slot0 + c.one_minus_decay * gradient * gradient;
    e.slot1 = c.momentum * e.slot1 + gradient / (sqrt(e.slot0) + c.epsilon);
    e.value -= c.rate * e.slot1;
  }
};

// Shared by Adam and AdamW: updates the slots with the gradient and returns the step at a rate of 1.
template <class S, class V>
LOCKSTEP_HOST_DEVICE V adam_step(const OptimizerConstants<S>& c, const V& gradient, OptimizerElement<V>& e) {
  using std::sqrt;
  e.slot0 = c.beta1 * e.slot0 + c.one_minus_beta1 * gradient;
  e.slot1 = c.beta2 * e.slot1 + c.one_minus_beta2 * gradient * gradient;
  return (e.slot0 / c.bias1) / (sqrt(e.slot1 / c.bias2) + c.epsilon);
}

struct AdamRule {
  static constexpr int kSlots = 2;
  template <class S, class V>
  LOCKSTEP_HOST_DEVICE static void apply(const OptimizerConstants<S>& c, const SegmentConstants<S>& segment,
                                         OptimizerElement<V>& e) {
    e.value -= c.rate * adam_step(c, V(e.gradient + segment.weight_decay * e.value), e);
  }
};

struct AdamwRule {
  static constexpr int kSlots = 2;
  template <class S, class V>
  LOCKSTEP_HOST_DEVICE static void apply(const OptimizerConstants<S>& c, const SegmentConstants<S>& segment,
                                         OptimizerElement<V>& e) {
    const V step = adam_step(c, e.gradient, e);
    e.value -= c.rate * (step + segment.weight_decay * e.value);
  }
};

struct LarsRule {
  static constexpr int kSlots = 1;
  template <class S, class V>
  LOCKSTEP_HOST_DEVICE static void apply(const OptimizerConstants<S>& c, const SegmentConstants<S>& segment,
                                         OptimizerElement<V>& e) {
    const V gradient = e.gradient + segment.weight_decay * e.value;
    e.slot0 = c.momentum * e.slot0 + c.rate * segment.trust * gradient;
    e.value -= e.slot0;
  }
};

// Shared by FTRL's two rules: the new value, from the linear term and the curvature of the quadratic term.
template <class S, class V>
LOCKSTEP_HOST_DEVICE V ftrl_value(const OptimizerConstants<S>& c, const V& linear, const V& quadratic) {
  using std::max;
  using std::min;
  return (max(min(linear, V(c.l1)), V(-c.l1)) - linear) / quadratic;
}

// learning_rate_power -1/2. The difference of the roots is written so that it does not cancel.
struct FtrlRootRule {
  static constexpr int kSlots = 2;
  template <class S, class V>
  LOCKSTEP_HOST_DEVICE static void apply(const OptimizerConstants<S>& c, const SegmentConstants<S>& segment,
                                         OptimizerElement<V>& e) {
    using std::sqrt;
    const V gradient = e.gradient + segment.weight_decay * e.value;
    const V before = sqrt(e.slot0);
    e.slot0 += gradient * gradient;
    const V after = sqrt(e.slot0);
    e.slot1 += gradient - gradient * gradient / (after + before) / c.rate * e.value;
    e.value = ftrl_value(c, e.slot1, V(after / c.rate + c.twice_l2));
  }
};

struct FtrlPowerRule {
  static constexpr int kSlots = 2;
  template <class S, class V>
  LOCKSTEP_HOST_DEVICE static void apply(const OptimizerConstants<S>& c, const SegmentConstants<S>& segment,
                                         OptimizerElement<V>& e) {
    using std::pow;
    const V gradient = e.gradient + segment.weight_decay * e.value;
    const V before = pow(e.slot0, V(c.power));
    e.slot0 += gradient * gradient;
    const V after = pow(e.slot0, V(c.power));
    e.slot1 += gradient - (after - before) / c.rate * e.value;
    e.value = ftrl_value(c, e.slot1, V(after / c.rate + c.twice_l2));
  }
};

// The factor of a segment's rate, from the sums of squares of its values and of its unscaled gradients.
struct SegmentSquares {
  double values = 0, gradients = 0;
};
struct LarsFactors {
  double trust, weight_decay, gradient_scale;
};
LOCKSTEP_HOST_DEVICE inline double lars_trust(const LarsFactors& factors, const SegmentSquares& squares) {
  const double value = std::sqrt(squares.values), gradient = factors.gradient_scale * std::sqrt(squares.gradients);
  return value > 0 && gradient > 0 ? factors.trust * value / (gradient + factors.weight_decay * value) : 1;
}

// Throws Error(internal). (Declared here because the rules are compiled for GPUs too, where messages cannot be
// formatted.)
[[noreturn]] void refuse_optimizer(OptimizerKind kind);

// Calls body(rule) with the rule of this optimizer.
template <class Body>
void with_rule(const ApplyOptimizer& op, const Body& body) {
  switch (op.kind) {
    case OptimizerKind::sgd:
      return op.nesterov ? body(NesterovRule{}) : body(SgdRule{});
    case OptimizerKind::rmsprop_tf:
      return body(RmspropTfRule{});
    case OptimizerKind::rmsprop:
      return body(RmspropRule{});
    case OptimizerKind::adam:
      return body(AdamRule{});
    case OptimizerKind::adamw:
      return body(AdamwRule{});
    case OptimizerKind::lars:
      return body(LarsRule{});
    case OptimizerKind::ftrl:
      return op.learning_rate_power == -0.5 ? body(FtrlRootRule{}) : body(FtrlPowerRule{});
  }
  refuse_optimizer(op.kind);
}

}  // namespace lockstep::kernels
