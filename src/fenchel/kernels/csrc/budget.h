// Projection of one row onto {0 <= p <= 1, sum(p) = k}: p = clip(x - tau, 0, 1), in double.
//
// The ceil(k)-th largest score lies between tau and tau + 1. Measured from it, tau is in [-1, 0]
// and every score that matters is exact, however large it is. The sum is piecewise linear in tau
// but not convex: Newton inside a bracket, the bracket's middle every other step.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>

#include "entmax_row.h"
#include "simd.h"

namespace fenchel {
namespace FENCHEL_ISA {

inline double clip(double value) { return value < 0 ? 0 : (value > 1 ? 1 : value); }

template <class T>
inline void budget_row(const T* x, int64_t n, double k, T* p, double* u) {
  double top = -kInf<double>;
  bool has_nan = false;
  int64_t kept = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double value = x[j];
    has_nan |= value != value;
    if (value > -kInf<double>) {
      if (value > top) top = value;
      ++kept;
    }
  }
  if (has_nan || top == kInf<double> || !(k >= 0)) return fill_row(p, n, kNaN<T>);
  if (static_cast<double>(kept) <= k) {
    for (int64_t j = 0; j < n; ++j) p[j] = x[j] > -kInf<T> ? T(1) : T(0);
    return;
  }
  const int64_t rank = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(k)) - 1);
  for (int64_t j = 0; j < n; ++j) u[j] = x[j];
  std::nth_element(u, u + rank, u + n, std::greater<double>());
  const double pivot = u[rank];
  for (int64_t j = 0; j < n; ++j) u[j] = static_cast<double>(x[j]) - pivot;

  double low = -1, high = 0, tau = -0.5, rest = 0;
  for (int step = 0; step < 200; ++step) {
    double sum = 0, active = 0;
    for (int64_t j = 0; j < n; ++j) {
      const double shifted = u[j] - tau;
      sum += clip(shifted);
      active += shifted > 0 && shifted < 1 ? 1 : 0;
    }
    const double excess = sum - k;
    if (excess >= 0) low = tau;
    if (excess <= 0) high = tau;
    rest = active > 0 ? excess / active : 0;
    const double newton = tau + rest, middle = low + (high - low) / 2;
    const double grain = 4 * std::numeric_limits<double>::epsilon();
    if (active > 0 && std::abs(rest) <= grain) break;
    if (excess == 0 || middle <= low || middle >= high) break;
    const bool inside = active > 0 && newton >= low && newton <= high;
    tau = inside && step % 2 == 0 ? newton : middle;
  }
  if (!(std::abs(rest) < 1)) rest = 0;
  for (int64_t j = 0; j < n; ++j) p[j] = static_cast<T>(clip((u[j] - tau) - rest));
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
