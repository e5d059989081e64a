// Renyimax, one row, in double. See reference/_renyimax.py for the maths.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../power_backward.h"
#include "../row_start.h"
#include "../rows.h"

namespace fenchel {
namespace FENCHEL_ISA {

// (1 + depth / (c s))^-(c + 1); a masked entry is infinitely deep and has no weight.
inline double renyi_weight(double depth, double c, double s) {
  return std::exp(-(c + 1) * std::log1p(depth / (c * s)));
}

template <class T>
inline void renyimax_row(const T* x, int64_t n, double beta, T* p, double* depth) {
  double top;
  if (finish_bad_row(x, n, beta > 0 && beta <= 1, p, &top)) return;
  if (beta == 1) return softmax_row(x, n, static_cast<T>(top), p);
  const double c = beta / (1 - beta);
  for (int64_t j = 0; j < n; ++j) depth[j] = top - static_cast<double>(x[j]);

  double s = 1, low = 0, high = 1;
  for (int step = 0; step < 100; ++step) {
    double total = 0, first = 0, pull = 0, second = 0;  // of w, w d, w g and w d g
    for (int64_t j = 0; j < n; ++j) {
      const double d = depth[j], w = renyi_weight(d, c, s);
      if (w == 0 || d == 0) {
        total += w;
        continue;
      }
      const double g = (c + 1) * d / (s * (c * s + d));  // d log(w) / ds
      total += w;
      first += w * d;
      pull += w * g;
      second += w * d * g;
    }
    const double mean = first / total, excess = (s - 1) + mean / c;
    const double slope = 1 + std::max(0.0, second / total - mean * (pull / total)) / c;
    const double newton = s - excess / slope;
    if (std::abs(newton - s) <= 1e-10 * s) {  // what remains is about its square
      s = newton;
      break;
    }
    (excess > 0 ? high : low) = s;
    s = newton > low && newton < high ? newton : low + (high - low) / 2;
  }
  double total = 0;
  for (int64_t j = 0; j < n; ++j) total += renyi_weight(depth[j], c, s);
  for (int64_t j = 0; j < n; ++j) p[j] = static_cast<T>(renyi_weight(depth[j], c, s) / total);
}

template <class T>
inline void renyimax_backward_row(const T* p, const T* g, int64_t n, double beta, T* grad_x,
                                  double* scratch) {
  power_backward_row(
      p, g, n, beta, beta, [&](double, double) { return 1 / beta; }, grad_x, scratch);
}

template <class T>
int renyimax_forward(const T* x, T* p, const Layout& at) {
  return for_contiguous_rows(
      x, p, at, at.n * sizeof(double), [&](int64_t row, const T* in, T* out, void* memory) {
        renyimax_row(in, at.n, at.parameter_of(row), out, static_cast<double*>(memory));
      });
}

// The parameter is a number and has no gradient: NaN, if asked for one.
template <class T>
int renyimax_backward(const T* p, const T* g, T* grad_x, double* grad_beta, const Layout& at) {
  return for_contiguous_pairs(
      p, g, grad_x, at, at.n * sizeof(double),
      [&](int64_t row, const T* value, const T* grad, T* out, void* memory) {
        renyimax_backward_row(value, grad, at.n, at.parameter_of(row), out,
                              static_cast<double*>(memory));
        if (grad_beta != nullptr) grad_beta[row] = kNaN<double>;
      });
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
