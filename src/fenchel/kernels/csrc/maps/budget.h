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

#include "../row_start.h"
#include "../rows.h"

namespace fenchel {
namespace FENCHEL_ISA {

inline double clip(double value) { return value < 0 ? 0 : (value > 1 ? 1 : value); }

template <class T>
inline void budget_row(const T* x, int64_t n, double k, T* p, double* u) {
  double top;
  if (finish_bad_row(x, n, k >= 0, p, &top)) return;
  int64_t kept = 0;
  for (int64_t j = 0; j < n; ++j) kept += x[j] > -kInf<T>;
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

// On the active entries 0 < p < 1: g minus its mean; in k: that mean.
template <class T>
inline void budget_backward_row(const T* p, const T* g, int64_t n, T* grad_x, double* grad_k) {
  double sum = 0;
  int64_t active = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] != 0 && p[j] != 1) {
      sum += static_cast<double>(g[j]) + static_cast<double>(p[j] - p[j]);
      ++active;
    }
  }
  const double mean = active == 0 ? 0 : sum / static_cast<double>(active);
  for (int64_t j = 0; j < n; ++j) {
    grad_x[j] = p[j] != 0 && p[j] != 1 ? static_cast<T>(static_cast<double>(g[j]) - mean) : T(0);
  }
  if (grad_k != nullptr) *grad_k = mean;
}

template <class T>
int budget_forward(const T* x, T* p, const Layout& at) {
  return for_contiguous_rows(
      x, p, at, at.n * sizeof(double), [&](int64_t row, const T* in, T* out, void* memory) {
        budget_row(in, at.n, at.parameter_of(row), out, static_cast<double*>(memory));
      });
}

template <class T>
int budget_backward(const T* p, const T* g, T* grad_x, double* grad_k, const Layout& at) {
  return for_contiguous_pairs(
      p, g, grad_x, at, 0, [&](int64_t row, const T* value, const T* grad, T* out, void*) {
        budget_backward_row(value, grad, at.n, out, grad_k == nullptr ? nullptr : grad_k + row);
      });
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
