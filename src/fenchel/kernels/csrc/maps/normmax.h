// Normmax, one row, in double on the entries within 1 of the maximum.
//
// With a = alpha - 1 and z = [x - tau]_+: p is proportional to w = z^(1/a), for the tau that gives
// sum(w z) = 1. The q-norm of z, q = 1 + 1/a, is convex in tau, so Newton climbs from the left.
#pragma once

#include <cmath>
#include <cstdint>

#include "../row_start.h"
#include "../rows.h"

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
  double top;
  if (finish_bad_row(x, n, alpha >= 1, p, &top)) return;
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

// grad_x = (N/a) (b (g - m) - p sum(b (g - m))), b = (p/N)^(2-alpha), m = <p, g>, N = ||p||_alpha.
template <class T>
inline void normmax_backward_row(const T* p, const T* g, int64_t n, double alpha, T* grad_x,
                                 double* grad_alpha) {
  const double a = alpha - 1;
  double mean = 0, peak = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] != 0) mean += static_cast<double>(p[j]) * static_cast<double>(g[j]);
    if (!(static_cast<double>(p[j]) <= peak)) peak = p[j];
  }
  if (grad_alpha != nullptr) *grad_alpha = static_cast<double>(p[0] - p[0]);  // NaN for a NaN row
  if (!(a > 0 && alpha < 1e300) || peak == 0) {
    // Piecewise constant.
    for (int64_t j = 0; j < n; ++j) grad_x[j] = p[j] - p[j];
    return;
  }
  double power = 0;  // (N / peak)^alpha
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] != 0) power += std::pow(static_cast<double>(p[j]) / peak, alpha);
  }
  const double norm = peak * std::pow(power, 1 / alpha);
  double pull = 0, drift = 0, spread = 0, direct = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] == 0) continue;
    const double w = p[j] / norm, l = std::log(w), b = std::exp((1 - a) * l);
    const double centred = static_cast<double>(g[j]) - mean;
    pull += b * centred;
    drift += std::exp(alpha * l) * l;
    spread += w;
    direct += centred * w * l;
  }
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] == 0) {
      grad_x[j] = 0;
      continue;
    }
    const double b = std::exp((1 - a) * std::log(p[j] / norm));
    const double centred = static_cast<double>(g[j]) - mean;
    grad_x[j] = static_cast<T>(norm / a * (b * centred - p[j] * pull));
  }
  if (grad_alpha != nullptr) {
    const double tau = -drift / (alpha * spread);  // how the threshold moves with alpha
    *grad_alpha = -(direct + tau * pull) / (a * spread);
  }
}

template <class T>
int normmax_forward(const T* x, T* p, const Layout& at) {
  return for_contiguous_rows(
      x, p, at, at.n * sizeof(double), [&](int64_t row, const T* in, T* out, void* memory) {
        normmax_row(in, at.n, at.parameter_of(row), out, static_cast<double*>(memory));
      });
}

template <class T>
int normmax_backward(const T* p, const T* g, T* grad_x, double* grad_alpha, const Layout& at) {
  return for_contiguous_pairs(
      p, g, grad_x, at, 0, [&](int64_t row, const T* value, const T* grad, T* out, void*) {
        normmax_backward_row(value, grad, at.n, at.parameter_of(row), out,
                             grad_alpha == nullptr ? nullptr : grad_alpha + row);
      });
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
