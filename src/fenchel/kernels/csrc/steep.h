// Entmax for alpha > 2, one row, in double. See _entmax_steep in _reference.py for the maths.
//
// Near the threshold p is infinitely steep in it, so the threshold is never the unknown: first the
// support (an entry is in it exactly if those above it do not fill the simplex alone), then Newton
// in y, the smallest supported p.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace fenchel {
namespace FENCHEL_ISA {

constexpr size_t steep_scratch_bytes(int64_t n) { return 2 * n * sizeof(double); }

// Whether the entries above depth[k] alone sum to 1 or more with the threshold there.
inline bool filled_above(const double* depth, int64_t k, double a) {
  double sum = 0;
  for (int64_t i = 0; i < k && sum < 1; ++i) {
    const double rise = a * (depth[k] - depth[i]);
    if (rise > 0) sum += std::exp(std::log(rise) / a);
  }
  return sum >= 1;
}

// Reads x (stride x_stride), writes p (stride p_stride); `top` is the row's finite maximum.
template <class T>
inline void steep_row(const T* x, int64_t x_stride, int64_t n, double top, double alpha, T* p,
                      int64_t p_stride, double* scratch) {
  const double a = alpha - 1, reach = 1 / a;
  double* depth = scratch;
  double* log_rise = scratch + n;
  int64_t candidates = 0;
  for (int64_t j = 0; j < n; ++j) {
    p[j * p_stride] = 0;
    const double d = top - static_cast<double>(x[j * x_stride]);
    if (d < reach) depth[candidates++] = d;
  }
  std::sort(depth, depth + candidates);
  int64_t in = 0, out = candidates;  // depth[in] is supported, depth[out] is not
  while (out - in > 1) {
    const int64_t middle = in + (out - in) / 2;
    (filled_above(depth, middle, a) ? out : in) = middle;
  }
  const int64_t size = in + 1;
  const double floor = depth[in];
  for (int64_t i = 0; i < size; ++i) log_rise[i] = std::log(a * (floor - depth[i]));

  double y = 1.0 / static_cast<double>(size);
  for (int step = 0; step < 100; ++step) {
    const double log_y = std::log(y);
    double sum = 0, slope = 0;
    for (int64_t i = 0; i < size; ++i) {
      const double low = a * log_y, high = std::max(low, log_rise[i]);
      const double gap = std::min(low, log_rise[i]) - high;
      const double log_p = (high + std::log1p(std::exp(gap))) / a;
      sum += std::exp(log_p);
      slope += std::exp((a - 1) * (log_y - log_p));
    }
    const double next = std::max(y - (sum - 1) / slope, 1e-300);
    if (!(next < y)) break;
    y = next;
    if (sum - 1 < 1e-9) break;  // the step just taken leaves about its square
  }
  const double low = a * std::log(y);
  for (int64_t j = 0; j < n; ++j) {
    const double d = top - static_cast<double>(x[j * x_stride]);
    if (!(d <= floor)) continue;
    const double rise = std::log(a * (floor - d));
    const double high = std::max(low, rise), gap = std::min(low, rise) - high;
    p[j * p_stride] = static_cast<T>(std::exp((high + std::log1p(std::exp(gap))) / a));
  }
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
