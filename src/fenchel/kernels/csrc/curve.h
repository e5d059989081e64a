// The curves p(w) of entmax, w = x - max - tau: what is summed, and how tau moves.
//
// With a = alpha - 1, p = [base + a w]_+^(1/a) and its slope is p^(1-a). The base is 0, which keeps
// small p exact (w is then a difference of neighbours), or 1 for small a, where tau tends to
// log-sum-exp and nothing blows up. The sum to the power a is a norm of a vector affine in tau,
// hence convex, and nearly linear: Newton on it starts left of the root, never passes it, and takes
// a handful of steps. The last step is not added to tau, where it would be rounded away, but kept
// beside it (`rest`).
#pragma once

#include "simd.h"

namespace fenchel {
namespace FENCHEL_ISA {

enum class Kind { kSoftmax, kSquare, kLinear, kGeneral, kSteep, kArgmax, kInvalid };

inline Kind kind_of(double alpha) {
  if (alpha == 1.0) return Kind::kSoftmax;
  if (alpha == 1.5) return Kind::kSquare;
  if (alpha == 2.0) return Kind::kLinear;
  if (alpha > 1.0 && alpha < 2.0) return Kind::kGeneral;
  if (alpha > 2.0) return alpha < 1e300 ? Kind::kSteep : Kind::kArgmax;
  return Kind::kInvalid;  // below 1, or NaN
}

// A row is done when its sum is within this of 1. Newton never overshoots, so what remains after
// the last step is smaller still; where the slope is smooth at 0, it is about the square.
template <class T>
constexpr T kTightSum = sizeof(T) == 4 ? T(5e-7) : T(2e-15);
template <class T>
constexpr T kSmoothSum = sizeof(T) == 4 ? T(1e-5) : T(1e-9);
constexpr int kMaxSteps = 100;

template <class T>
struct Linear {  // alpha = 2, p = [w]_+
  static constexpr T kTolerance = kTightSum<T>;
  Vec<T> operator()(Vec<T> w, Vec<T>* slope) const {
    *slope = w > T(0) ? splat(T(1)) : splat(T(0));
    return value(w);
  }
  Vec<T> value(Vec<T> w) const { return larger<T>(w, splat(T(0))); }
  // Newton's step in tau from the sum of p and of the slopes.
  Vec<T> step(Vec<T> sum, Vec<T> slope) const { return (sum - T(1)) / slope; }
  double step(double sum, double slope) const { return (sum - 1) / slope; }
};

template <class T>
struct Square {  // alpha = 1.5, p = [w/2]_+^2
  static constexpr T kTolerance = kSmoothSum<T>;
  Vec<T> operator()(Vec<T> w, Vec<T>* slope) const {
    *slope = larger<T>(T(0.5) * w, splat(T(0)));
    return *slope * *slope;
  }
  Vec<T> value(Vec<T> w) const {
    Vec<T> slope;
    return (*this)(w, &slope);
  }
  Vec<T> step(Vec<T> sum, Vec<T> slope) const {
    // 2 (S - sqrt S) / D, written without the cancellation.
    Vec<T> root;
    for (int lane = 0; lane < kLanes<T>; ++lane) root[lane] = std::sqrt(sum[lane]);
    return T(2) * root * (sum - T(1)) / ((root + T(1)) * slope);
  }
  double step(double sum, double slope) const {
    const double root = std::sqrt(sum);
    return 2 * root * (sum - 1) / ((root + 1) * slope);
  }
};

// (1 - exp(-y)) / y for y >= 0, also for tiny y.
inline double decay(double y) { return y < 1e-8 ? 1 - y / 2 : -std::expm1(-y) / y; }

// The base for a given a: below 1/2, small p are powers high enough to hide the rounding of 1 + a w.
inline double base_of(double a) { return a < 0.5 ? 1 : 0; }

template <class T>
struct General {  // 1 < alpha < 2, one alpha a lane
  static constexpr T kTolerance = kTightSum<T>;
  Vec<T> a, inverse_a, base;
  double scalar_a;

  explicit General(double value)
      : a(splat(static_cast<T>(value))),
        inverse_a(splat(static_cast<T>(1 / value))),
        base(splat(static_cast<T>(base_of(value)))),
        scalar_a(value) {}
  void set(int lane, double value) {
    a[lane] = static_cast<T>(value);
    inverse_a[lane] = static_cast<T>(1 / value);
    base[lane] = static_cast<T>(base_of(value));
  }

  Vec<T> operator()(Vec<T> w, Vec<T>* slope) const {
    const Vec<T> y = a * w;
    const Vec<T> z = base + y;
    const Mask<T> in = z > T(0);
    const Vec<T> safe = in ? z : splat(T(1));
    const Vec<T> inverse_z = T(1) / safe;
    // What rounding took from base + y is put back.
    const Vec<T> lost = in ? y - (z - base) : splat(T(0));
    const Vec<T> p = exp((log(safe) + lost * inverse_z) * inverse_a);
    *slope = in ? p * inverse_z : splat(T(0));
    return in ? p : splat(T(0));
  }
  Vec<T> value(Vec<T> w) const {
    Vec<T> slope;
    return (*this)(w, &slope);
  }
  Vec<T> step(Vec<T> sum, Vec<T> slope) const {
    Vec<T> out;
    for (int lane = 0; lane < kLanes<T>; ++lane) {
      const double log_sum = std::log(static_cast<double>(sum[lane]));
      out[lane] = static_cast<T>(sum[lane] * log_sum * decay(a[lane] * log_sum) / slope[lane]);
    }
    return out;
  }
  double step(double sum, double slope) const {
    const double log_sum = std::log(sum);
    return sum * log_sum * decay(scalar_a * log_sum) / slope;
  }
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
