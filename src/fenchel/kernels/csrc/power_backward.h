// First-order gradients of the maps whose Hessian has an inverse of one form, diagonal minus rank
// one; fenchel/maps/_power_jacobian.py derives it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace fenchel {
namespace FENCHEL_ISA {

// The largest p; NaN if any is.
template <class T>
inline double peak_of(const T* p, int64_t n) {
  double peak = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (!(static_cast<double>(p[j]) <= peak)) peak = p[j];
    if (peak != peak) break;
  }
  return peak;
}

// Gradient for the inverse Hessian scale * (diag(t) - share p p^T), t = sum(p^e) p^(2 - e) on the
// support; scale is a function of the largest p and of sum((p / largest)^e). t goes to `scratch`.
template <class T, class Scale>
inline void power_backward_row(const T* p, const T* g, int64_t n, double exponent, double share,
                               const Scale& scale_of, T* grad_x, double* scratch) {
  const double peak = peak_of(p, n);
  if (!(peak > 0)) {  // fully masked, or NaN
    for (int64_t j = 0; j < n; ++j) grad_x[j] = p[j] - p[j];
    return;
  }
  double powers = 0;
  int64_t steepest = -1;  // where t is largest
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] == 0) continue;
    powers += std::pow(p[j] / peak, exponent);
    const bool steeper = steepest < 0 || (exponent > 2 ? p[j] < p[steepest] : p[j] > p[steepest]);
    if (steeper) steepest = j;
  }
  const double base = g[steepest], root = std::sqrt(powers);
  double mean = 0, spread = 0, total = 0;  // of g under p; sum(t) - 1 as a sum of squares; sum(t)
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] == 0) continue;
    const double ratio = p[j] / peak, half = std::pow(ratio, 1 - exponent / 2);
    const double gap = peak * root * half - ratio / (half * root);
    scratch[j] = std::min(peak * peak * powers * half * half, 1e150);
    mean += p[j] * (static_cast<double>(g[j]) - base);
    spread += gap * gap;
    total += scratch[j];
  }
  // Where t is large somewhere, g relative to that entry leaves nothing large to cancel; elsewhere
  // h and its sum may cancel, and g is taken relative to its mean.
  const bool small = spread < 1;
  const double reference = small ? mean : 0, left = mean - reference;
  const double sigma = small ? spread + (1 - share) : total - share;
  double weighted = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] != 0) weighted += scratch[j] * ((static_cast<double>(g[j]) - base) - reference);
  }
  const bool moves = 1 - share > static_cast<double>(std::numeric_limits<T>::epsilon());
  const double shift = moves ? (weighted - share * left) / sigma : 0;
  const double scale = scale_of(peak, powers);
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] == 0) {
      grad_x[j] = 0;
      continue;
    }
    const double centred = ((static_cast<double>(g[j]) - base) - reference) - shift;
    grad_x[j] = static_cast<T>(scale * (scratch[j] * centred - share * p[j] * (left - shift)));
  }
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
