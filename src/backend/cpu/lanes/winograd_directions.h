// The transforms of Winograd's method. Part of lane_body.h: compiled once per instruction set, in a namespace of its
// own.
//
// In one direction, the product of two polynomials, with four coefficients and with t, is found from its values at
// t + 3 points: 0, pairs p and -p, and infinity. Four outputs of a convolution with t taps are the transpose of that:
// the product is linear in either factor. A two-dimensional window is transformed in one direction after the other. The
// points keep the rounding error small (compare Barabasz et al., "Error Analysis and Improving the Accuracy of Winograd
// Convolution", 2020); with them, all factors but those of the weights are exact in float.
#pragma once

#include <array>

#include "backend/cpu/lanes/lanes.h"

namespace lockstep::cpu::LOCKSTEP_LANES_NAMESPACE {

template <int kPoints>
constexpr std::array<double, kPoints / 2 - 1> kPairs;
template <>
inline constexpr std::array<double, 2> kPairs<6>{0.625, 1.5};
template <>
inline constexpr std::array<double, 4> kPairs<10>{0.4375, 0.75, 1.25, 2.5};

// The factors of the transforms of one direction, by pair and power.
template <int kPoints>
struct Factors {
  static constexpr int kCount = static_cast<int>(kPairs<kPoints>.size());
  float products[kCount + 1][kCount + 1] = {};  // of (z - p^2) over all pairs but one; last: over all pairs
  float powers[kCount][kPoints] = {};           // of p
  float shares[kCount][kPoints] = {};           // the same, divided by the divisor of the weights at p and -p
  float zero_share = 0;                         // the same of the weights at 0

  constexpr Factors() {
    for (int but = 0; but <= kCount; ++but) {
      double c[kCount + 1] = {1};
      int degree = 0;
      for (int k = 0; k < kCount; ++k) {
        if (k == but) continue;
        for (int i = ++degree; i > 0; --i) c[i] = c[i - 1] - square(k) * c[i];
        c[0] *= -square(k);
      }
      for (int i = 0; i <= degree; ++i) products[but][i] = static_cast<float>(c[i]);
      if (but == kCount) {
        zero_share = static_cast<float>(1 / c[0]);
      } else {
        set_powers(but, c);
      }
    }
  }

 private:
  static constexpr double square(int pair) { return kPairs<kPoints>[pair] * kPairs<kPoints>[pair]; }
  constexpr void set_powers(int pair, const double (&others)[kCount + 1]) {
    double value = 0;
    for (int i = kCount; i-- > 0;) value = value * square(pair) + others[i];
    double power = 1;
    for (int i = 0; i < kPoints; ++i, power *= kPairs<kPoints>[pair]) {
      powers[pair][i] = static_cast<float>(power);
      shares[pair][i] = static_cast<float>(power / (2 * square(pair) * value));
    }
  }
};
template <int kPoints>
inline constexpr Factors<kPoints> kFactors;

// One direction of each transform. Those of a gradient are the transposes of those of the convolution.
template <int kTapCount>
struct Direction {
  static constexpr int kTaps = kTapCount, kTile = 4, kPoints = kTile + kTaps - 1;
  static constexpr int kCount = Factors<kPoints>::kCount;

  struct Powers {
    static constexpr float at(int pair, int power) { return kFactors<kPoints>.powers[pair][power]; }
  };
  struct Shares {
    static constexpr float at(int pair, int power) { return kFactors<kPoints>.shares[pair][power]; }
  };

  struct Image {
    static constexpr int kFrom = kPoints, kTo = kPoints;
    template <class V>
    LOCKSTEP_FORMULA static void apply(const V (&d)[kFrom], V (&r)[kTo]) {
      constexpr const auto& kProducts = kFactors<kPoints>.products;
      V zero = d[kPoints - 2], infinity = d[kPoints - 1];
      for (int i = kCount; i-- > 0;) {
        zero += V(kProducts[kCount][i]) * d[2 * i];
        infinity += V(kProducts[kCount][i]) * d[2 * i + 1];
      }
      r[0] = zero;
      r[kPoints - 1] = infinity;
      for (int k = 0; k < kCount; ++k) {
        V odd = d[kPoints - 3], even = d[kPoints - 2];
        for (int i = kCount - 1; i-- > 0;) {
          odd += V(kProducts[k][i]) * d[2 * i + 1];
          even += V(kProducts[k][i]) * d[2 * i + 2];
        }
        r[2 * k + 1] = even + V(Powers::at(k, 1)) * odd;
        r[2 * k + 2] = even - V(Powers::at(k, 1)) * odd;
      }
    }
  };
  struct Output {
    static constexpr int kFrom = kPoints, kTo = kTile;
    template <class V>
    LOCKSTEP_FORMULA static void apply(const V (&m)[kFrom], V (&y)[kTo]) {
      sum_powers<Powers>(m, y);
      y[0] += m[0];
    }
  };
  struct OutputGradient {
    static constexpr int kFrom = kTile, kTo = kPoints;
    template <class V>
    LOCKSTEP_FORMULA static void apply(const V (&y)[kFrom], V (&r)[kTo]) {
      evaluate<Powers>(y, r);
      r[0] = y[0];
    }
  };
  struct Weights {
    static constexpr int kFrom = kTaps, kTo = kPoints;
    template <class V>
    LOCKSTEP_FORMULA static void apply(const V (&g)[kFrom], V (&r)[kTo]) {
      evaluate<Shares>(g, r);
      r[0] = V(kFactors<kPoints>.zero_share) * g[0];
    }
  };
  struct WeightsGradient {
    static constexpr int kFrom = kPoints, kTo = kTaps;
    template <class V>
    LOCKSTEP_FORMULA static void apply(const V (&s)[kFrom], V (&g)[kTo]) {
      sum_powers<Shares>(s, g);
      g[0] += V(kFactors<kPoints>.zero_share) * s[0];
    }
  };

 private:
  // The values of a polynomial at the pairs and at infinity.
  template <class Table, class V, int kTerms>
  LOCKSTEP_FORMULA static void evaluate(const V (&c)[kTerms], V (&r)[kPoints]) {
    for (int k = 0; k < kCount; ++k) {
      V sums[2];  // of the even and of the odd powers
      for (int i = kTerms; i-- > 0;) {
        const V term = V(Table::at(k, i)) * c[i];
        sums[i % 2] = i >= kTerms - 2 ? term : sums[i % 2] + term;
      }
      r[2 * k + 1] = sums[0] + sums[1];
      r[2 * k + 2] = sums[0] - sums[1];
    }
    r[kPoints - 1] = c[kTerms - 1];
  }
  // Its transpose.
  template <class Table, class V, int kTerms>
  LOCKSTEP_FORMULA static void sum_powers(const V (&m)[kPoints], V (&y)[kTerms]) {
    for (int i = 0; i < kTerms - 1; ++i) y[i] = V(0);
    y[kTerms - 1] = m[kPoints - 1];
    for (int k = kCount; k-- > 0;) {
      const V sums[2] = {m[2 * k + 1] + m[2 * k + 2], m[2 * k + 1] - m[2 * k + 2]};
      for (int i = 0; i < kTerms; ++i) y[i] += V(Table::at(k, i)) * sums[i % 2];
    }
  }
};

// The direction in which the window is one pixel wide.
template <>
struct Direction<1> {
  static constexpr int kTaps = 1, kTile = 1, kPoints = 1;
  struct Same {
    static constexpr int kFrom = 1, kTo = 1;
    template <class V>
    LOCKSTEP_FORMULA static void apply(const V (&from)[1], V (&to)[1]) {
      to[0] = from[0];
    }
  };
  using Image = Same;
  using Output = Same;
  using OutputGradient = Same;
  using Weights = Same;
  using WeightsGradient = Same;
};

template <class AlongY, class AlongX>
struct Method {
  using Y = AlongY;
  using X = AlongX;
  static constexpr int kTaps = Y::kTaps * X::kTaps;
};

}  // namespace lockstep::cpu::LOCKSTEP_LANES_NAMESPACE
