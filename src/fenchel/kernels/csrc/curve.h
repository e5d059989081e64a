// The curves p(w) of entmax, w = x - max - tau: what is summed, and how tau moves.
//
// With a = alpha - 1, p = [base + a w]_+^(1/a) and its slope is p^(1-a). The base is 0, which keeps
// small p exact (w is then a difference of neighbours), or 1 for small a, where tau tends to
// log-sum-exp and nothing blows up. The sum to the power a is a norm of a vector affine in tau,
// hence convex, and nearly linear: Newton on it starts left of the root, never passes it, and takes
// a handful of steps. The last step is not added to tau, where it would be rounded away, but kept
// beside it (`rest`).
//
// Below 1, a < 0 and p = (1 + a w)^(1/a) is positive everywhere: dense, with a tail that falls as a
// power of the score. The sum to the power a is then concave and grows with tau, and Newton climbs
// all the same.
#pragma once

#include "elementary.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Which path an alpha takes. kWhole3 to kWhole8: 1/(alpha - 1) is that whole number (alpha = 4/3,
// 1.25, 1.2, ...), and powers are products. kSmall: alpha so near 1 that roundings are put back.
// kHeavy: alpha below 1.
enum class AlphaKind {
  kSoftmax,
  kSquare,
  kLinear,
  kWhole3,
  kWhole4,
  kWhole5,
  kWhole6,
  kWhole7,
  kWhole8,
  kGeneral,
  kSmall,
  kSteep,
  kArgmax,
  kHeavy,
  kInvalid
};

inline AlphaKind kind_of(double alpha) {
  if (alpha == 1.0) return AlphaKind::kSoftmax;
  if (alpha == 1.5) return AlphaKind::kSquare;
  if (alpha == 2.0) return AlphaKind::kLinear;
  if (alpha > 1.0 && alpha < 2.0) {
    const double inverse = 1 / (alpha - 1), whole = std::nearbyint(inverse);
    if (whole >= 3 && whole <= 8 && std::abs(inverse - whole) < 1e-14 * whole) {
      return static_cast<AlphaKind>(static_cast<int>(AlphaKind::kWhole3) + static_cast<int>(whole) -
                                    3);
    }
    return inverse > 16 ? AlphaKind::kSmall : AlphaKind::kGeneral;
  }
  if (alpha > 2.0) return alpha < 1e300 ? AlphaKind::kSteep : AlphaKind::kArgmax;
  return alpha > 0.0 ? AlphaKind::kHeavy : AlphaKind::kInvalid;  // 0 or less, or NaN
}

// A row is done when its sum is within this of 1. Newton never overshoots, so what remains after
// the last step is smaller still; where the slope is smooth at 0, it is about the square.
template <class T>
constexpr T kTightSum = sizeof(T) == 4 ? T(5e-7) : T(2e-15);
template <class T>
constexpr T kSmoothSum = sizeof(T) == 4 ? T(1e-5) : T(1e-9);
constexpr int kMaxSteps = 100;

// (S - S^(1-a)) / (a D): Newton's step in tau from the sum S of p and the sum D of slopes.
inline double newton_step(double sum, double slope, double a) {
  const double y = a * std::log(sum);
  const double decay = std::abs(y) < 1e-8 ? 1 - y / 2 : -std::expm1(-y) / y;
  return sum * std::log(sum) * decay / slope;
}

template <class T>
inline Vec<T> newton_step(Vec<T> sum, Vec<T> slope, Vec<T> a) {
  const Vec<T> log_sum = log(sum), y = a * log_sum;
  const Vec<T> near = T(1) - y * (T(0.5) - y * (T(1) / 6 - y * (T(1) / 24 - y * (T(1) / 120))));
  const Mask<T> far = (y > T(0.1)) | (y < T(-0.1));
  const Vec<T> decay = far ? (T(1) - exp(-y)) / y : near;
  return sum * log_sum * decay / slope;
}

template <class T>
struct Linear {  // alpha = 2, p = [w]_+
  static constexpr bool kCheap = true;
  Mask<T> done(Vec<T> sum, Vec<T>) const { return sum <= T(1) + kTightSum<T>; }
  Vec<T> operator()(Vec<T> w, Vec<T>* slope) const {
    *slope = w > T(0) ? splat(T(1)) : splat(T(0));
    return value(w);
  }
  Vec<T> value(Vec<T> w) const { return larger<T>(w, splat(T(0))); }
  Vec<T> step(Vec<T> sum, Vec<T> slope) const { return (sum - T(1)) / slope; }
  double step(double sum, double slope) const { return (sum - 1) / slope; }
};

template <class T>
struct Square {  // alpha = 1.5, p = [w/2]_+^2
  static constexpr bool kCheap = true;
  Mask<T> done(Vec<T> sum, Vec<T>) const { return sum <= T(1) + kSmoothSum<T>; }
  Vec<T> operator()(Vec<T> w, Vec<T>* slope) const {
    *slope = larger<T>(T(0.5) * w, splat(T(0)));
    return *slope * *slope;
  }
  Vec<T> value(Vec<T> w) const {
    Vec<T> slope;
    return (*this)(w, &slope);
  }
  // 2 (S - sqrt S) / D, written without the cancellation.
  Vec<T> step(Vec<T> sum, Vec<T> slope) const {
    const Vec<T> root = sqrt<T>(sum);
    return T(2) * root * (sum - T(1)) / ((root + T(1)) * slope);
  }
  double step(double sum, double slope) const {
    const double root = std::sqrt(sum);
    return 2 * root * (sum - 1) / ((root + 1) * slope);
  }
};

template <class T, int kPower>
struct Whole {  // alpha = 1 + 1/kPower, p = [1 + w/kPower]_+^kPower
  static constexpr bool kCheap = true;
  Mask<T> done(Vec<T> sum, Vec<T>) const { return sum <= T(1) + kSmoothSum<T>; }
  Vec<T> operator()(Vec<T> w, Vec<T>* slope) const {
    const Vec<T> z = larger<T>(T(1) + w * (T(1) / kPower), splat(T(0)));
    Vec<T> product = z;
    for (int i = 2; i < kPower; ++i) product *= z;
    *slope = product;
    return product * z;
  }
  Vec<T> value(Vec<T> w) const {
    Vec<T> slope;
    return (*this)(w, &slope);
  }
  Vec<T> step(Vec<T> sum, Vec<T> slope) const {
    return newton_step<T>(sum, slope, splat(T(1) / kPower));
  }
  double step(double sum, double slope) const { return newton_step(sum, slope, 1.0 / kPower); }
};

// The base for a given a: below 1/2, small p are powers high enough to hide the rounding of
// 1 + a w.
inline double base_of(double a) { return a < 0.5 ? 1 : 0; }

template <class T>
struct General {  // 1 < alpha < 2, one alpha a lane
  static constexpr bool kCheap = false;
  Vec<T> a, inverse_a, base;
  double scalar_a;
  Vec<T> last_step;

  General(Vec<T> a, T log_n)
      : a(a), inverse_a(T(1) / a), base(a < T(0.5) ? splat(T(1)) : splat(T(0))), scalar_a(a[0]) {
    // A step this small moves p of n entries at the threshold by no more than the last place.
    const T log_last_place = (sizeof(T) == 4 ? T(-16.1) : T(-34.5)) - log_n;
    last_step = exp(a * log_last_place) * inverse_a;
  }
  // The last step is not evaluated but taken along the curve (see `settle`): right to second order,
  // so the sum must be near, and nothing near the threshold may move by much.
  Mask<T> done(Vec<T> sum, Vec<T> step) const {
    const T near = sizeof(T) == 4 ? T(2e-4) : T(2e-8);
    const Vec<T> excess = larger<T>(sum - T(1), T(1) - sum), size = larger<T>(step, -step);
    return (excess <= kTightSum<T>) | ((excess < near) & (size < last_step));
  }
  Vec<T> operator()(Vec<T> w, Vec<T>* slope) const {
    const Vec<T> z = base + a * w;
    const Mask<T> in = z > std::numeric_limits<T>::min();
    const Vec<T> p = power<T>(z, inverse_a);
    *slope = in ? p * rough_inverse<T>(z) : splat(T(0));
    return in ? p : splat(T(0));
  }
  // tau at which the largest p has the given logarithm.
  Vec<T> tau_of(Vec<T> log_p) const { return (base - exp(a * log_p)) * inverse_a; }
  // p after a small step of tau, from p and its slope before: to second order.
  Vec<T> settle(Vec<T> p, Vec<T> slope, Vec<T> step) const {
    const Vec<T> change = slope * step;
    const Mask<T> in = p > change;
    const Vec<T> bend = T(0.5) * (T(1) - a) * change * change / (in ? p : splat(T(1)));
    return in ? (p - change) + bend : splat(T(0));
  }
  Vec<T> step(Vec<T> sum, Vec<T> slope) const { return newton_step<T>(sum, slope, a); }
  double step(double sum, double slope) const { return newton_step(sum, slope, scalar_a); }
};

template <class T>
struct Small {  // alpha within 1/16 of 1, base 1: what rounding took from 1 + a w counts
  static constexpr bool kCheap = true;
  Vec<T> a, inverse_a;
  double scalar_a;

  explicit Small(Vec<T> a) : a(a), inverse_a(T(1) / a), scalar_a(a[0]) {}
  Mask<T> done(Vec<T> sum, Vec<T>) const { return sum <= T(1) + kSmoothSum<T>; }
  Vec<T> operator()(Vec<T> w, Vec<T>* slope) const {
    const Vec<T> y = a * w, z = T(1) + y;
    const Mask<T> in = z > std::numeric_limits<T>::min();
    const Vec<T> inverse_z = T(1) / (in ? z : splat(T(1)));
    const Vec<T> lost = y - (z - T(1));
    const Vec<T> p = exp((log(in ? z : splat(T(1))) + lost * inverse_z) * inverse_a);
    *slope = in ? p * inverse_z : splat(T(0));
    return in ? p : splat(T(0));
  }
  Vec<T> value(Vec<T> w) const {
    Vec<T> slope;
    return (*this)(w, &slope);
  }
  Vec<T> step(Vec<T> sum, Vec<T> slope) const { return newton_step<T>(sum, slope, a); }
  double step(double sum, double slope) const { return newton_step(sum, slope, scalar_a); }
};

// tau of n equal entries for alpha below 1: (n^-a - 1) / -a.
inline double heavy_equal(double a, double log_n) {
  const double y = -a * log_n;
  return y < 1e-8 ? log_n : std::expm1(y) / -a;
}

template <class T>
struct Heavy {  // 0 < alpha < 1, base 1: z >= 1, and what rounding took from it counts, as above
  static constexpr bool kCheap = true;
  Vec<T> a, inverse_a;
  double scalar_a;

  explicit Heavy(Vec<T> a) : a(a), inverse_a(T(1) / a), scalar_a(a[0]) {}
  Mask<T> done(Vec<T> sum, Vec<T>) const { return sum <= T(1) + kSmoothSum<T>; }
  Vec<T> operator()(Vec<T> w, Vec<T>* slope) const {
    const Vec<T> y = a * w, sum = T(1) + y;
    const Mask<T> in = sum < kInf<T>;  // not so for a masked entry
    const Vec<T> z = in ? sum : splat(T(1)), inverse_z = T(1) / z;
    const Vec<T> lost = (in ? y : splat(T(0))) - (z - T(1));
    const Vec<T> p = exp((log(z) + lost * inverse_z) * inverse_a);
    *slope = in ? p * inverse_z : splat(T(0));
    return in ? p : splat(T(0));
  }
  Vec<T> value(Vec<T> w) const {
    Vec<T> slope;
    return (*this)(w, &slope);
  }
  Vec<T> step(Vec<T> sum, Vec<T> slope) const { return newton_step<T>(sum, slope, a); }
  double step(double sum, double slope) const { return newton_step(sum, slope, scalar_a); }
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
