// Normmax, one row, in double on the entries within 1 of the maximum.
//
// With a = alpha - 1 and z = [x - tau]_+: p is proportional to w = z^(1/a), for the tau that gives
// sum(w z) = 1. The q-norm of z, q = 1 + 1/a, is convex in tau, so Newton climbs from the left.
#pragma once

#include <cmath>
#include <cstdint>

#include "entmax_row.h"
#include "simd.h"

namespace fenchel {
namespace FENCHEL_ISA {

// z^(1/a) for z = base + w; at alpha = inf the indicator of z > 0. As in curve.h the base is 1 for
// alpha near 1, where log(1 + w) counts to the last digit of w, and 0 otherwise.
inline double normmax_weight(double w, double base, double inverse_a) {
  if (!(base + w > 0)) return 0;
  if (inverse_a == 1) return base + w;
  return std::exp(inverse_a * (base == 1 ? std::log1p(w) : std::log(w)));
}

template <class T>
inline void normmax_row(const T* x, int64_t n, double alpha, T* p, double* scratch) {
  double top = -kInf<double>;
  bool has_nan = false;
  for (int64_t j = 0; j < n; ++j) {
    has_nan |= x[j] != x[j];
    if (x[j] > top) top = x[j];
  }
  if (has_nan || top == kInf<double> || !(alpha >= 1)) return fill_row(p, n, kNaN<T>);
  if (top == -kInf<double>) return fill_row(p, n, T(0));
  if (alpha == 1) return argmax_row(x, n, static_cast<T>(top), p);

  double* u = scratch;
  int64_t count = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double value = static_cast<double>(x[j]) - top;
    if (value > -1) u[count++] = value;
  }
  const double inverse_a = 1 / (alpha - 1), inverse_q = 1 / (1 + inverse_a);
  const double base = inverse_a > 2 ? 1 : 0;
  double tau = base - 1, rest = 0;
  for (int step = 0; step < 100; ++step) {
    double sum = 0, weights = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double w = u[i] - tau, weight = normmax_weight(w, base, inverse_a);
      weights += weight;
      sum += weight * (base + w);
    }
    rest = sum * -std::expm1(-inverse_q * std::log(sum)) / weights;
    const double next = tau + rest;
    if (sum <= 1 + 1e-15 || !(next > tau)) break;
    tau = next;
  }
  double total = 0;
  for (int64_t i = 0; i < count; ++i) {
    total += normmax_weight((u[i] - tau) - rest, base, inverse_a);
  }
  for (int64_t j = 0; j < n; ++j) {
    const double w = ((static_cast<double>(x[j]) - top) - tau) - rest;
    p[j] = static_cast<T>(normmax_weight(w, base, inverse_a) / total);
  }
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
