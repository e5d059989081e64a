// Sq_pnorm_max, one row, in double on the entries within 1 of the maximum. The maths stands in
// reference/_sq_pnorm_max.py; a = q - 1, r = q / a.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../power_backward.h"
#include "../row_start.h"
#include "../rows.h"

namespace fenchel {
namespace FENCHEL_ISA {

constexpr double kSquaredNormTolerance = 2e-14;  // of the last step, which is still taken

// (z / h)^(1/a) for z = h - depth, from the depth where a is small: there its last digit counts.
inline double squared_norm_weight(double depth, double z, double h, double inverse_a) {
  if (!(z > 0)) return 0;
  if (inverse_a == 1) return z / h;
  if (inverse_a == 2) return (z / h) * (z / h);
  return std::exp(inverse_a * (inverse_a > 2 ? std::log1p(-depth / h) : std::log(z / h)));
}

// 1 < q <= 2: the unknown is h, how far the maximum lies above the threshold.
template <class T>
inline void squared_norm_flat(const T* x, int64_t n, double top, double q, T* p, double* depth) {
  const double inverse_a = 1 / (q - 1), r = 1 + inverse_a;
  int64_t count = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double d = top - static_cast<double>(x[j]);
    if (d < 1) depth[count++] = d;
  }
  double h = 1, low = 0, high = 1, rest = 0;
  for (int step = 0; step < 200; ++step) {
    double s0 = 0, s1 = 0, s2 = 0;  // sums of (z/h)^(r-2), (z/h)^(r-1), (z/h)^r
    for (int64_t i = 0; i < count; ++i) {
      const double z = h - depth[i], w = squared_norm_weight(depth[i], z, h, inverse_a);
      if (w == 0) continue;
      s0 += w * h / z;
      s1 += w;
      s2 += w * z / h;
    }
    const double scale = std::pow(s2, (2 - r) / r), excess = h * s1 * scale - 1;
    rest = -excess / (scale * ((r - 1) * s0 - (r - 2) * s1 * s1 / s2));
    if (std::abs(rest) <= kSquaredNormTolerance * h) break;
    (excess > 0 ? high : low) = h;
    const double newton = h + rest, middle = low + (high - low) / 2;
    if (!(middle > low && middle < high)) break;
    h = newton > low && newton < high ? newton : middle;
  }
  if (!(std::abs(rest) <= 1e-9 * h)) rest = 0;
  double total = 0;
  const auto weight = [&](double d) {
    return squared_norm_weight(d, (h - d) + rest, h + rest, inverse_a);
  };
  for (int64_t i = 0; i < count; ++i) total += weight(depth[i]);
  for (int64_t j = 0; j < n; ++j) {
    p[j] = static_cast<T>(weight(top - static_cast<double>(x[j])) / total);
  }
}

// The mass that the entries above score[k] (sorted, descending) have with the threshold there.
inline double squared_norm_above(const double* score, int64_t k, double q, double inverse_a) {
  double sum = 0, powers = 0;
  for (int64_t i = 0; i < k; ++i) {
    const double z = score[i] - score[k];
    if (!(z > 0)) continue;
    const double u = std::pow(z, inverse_a);
    sum += u;
    powers += u * z;
  }
  return sum * std::pow(powers, 1 - 2 / q);
}

// q = inf: all above the lowest supported score have the same mass; it and its ties the rest.
template <class T>
inline void squared_maximum(const T* x, int64_t n, const double* score, int64_t size, T* p) {
  const double lowest = score[size - 1];
  double above = 0, mass = 0;
  for (int64_t i = 0; i < size && score[i] > lowest; ++i) {
    above += 1;
    mass += score[i] - lowest;
  }
  const double all = static_cast<double>(size);
  const bool uniform = all * mass <= 1;
  const T high = static_cast<T>(uniform ? 1 / all : mass);
  const T low = static_cast<T>(uniform ? 1 / all : (1 - above * mass) / (all - above));
  for (int64_t j = 0; j < n; ++j) {
    const double value = x[j];
    p[j] = value > lowest ? high : (value == lowest ? low : T(0));
  }
}

// q > 2: first the support, then Newton in t = (smallest z)^(1/a), kept as log(z) = a log(t).
template <class T>
inline void squared_norm_steep(const T* x, int64_t n, double top, double q, T* p, double* scratch) {
  const double a = q - 1, inverse_a = 1 / a, r = 1 + inverse_a;
  double* score = scratch;
  double* log_rise = scratch + n;
  int64_t candidates = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double value = x[j];
    if (top - value < 1) score[candidates++] = value;
  }
  std::sort(score, score + candidates, [](double a, double b) { return a > b; });
  int64_t in = 0, out = candidates;  // score[in] is supported, score[out] is not
  while (out - in > 1) {
    const int64_t middle = in + (out - in) / 2;
    (squared_norm_above(score, middle, q, inverse_a) >= 1 ? out : in) = middle;
  }
  const int64_t size = in + 1;
  if (!(q <= 1e18)) return squared_maximum(x, n, score, size, p);
  const double lowest = score[in], infinity = kInf<double>;
  for (int64_t i = 0; i < size; ++i) log_rise[i] = std::log(score[i] - lowest);
  const auto log_sum = [](double one, double other) {
    const double high = std::max(one, other);
    return high + std::log1p(std::exp(std::min(one, other) - high));
  };

  double log_y = -2 * a / q * std::log(static_cast<double>(size)), low = -infinity, high = infinity;
  for (int step = 0; step < 200; ++step) {
    double sum = 0, powers = 0, direct = 0;  // of u = z^(1/a), z^r, and u y / z
    for (int64_t i = 0; i < size; ++i) {
      const double log_z = log_sum(log_y, log_rise[i]), u = std::exp(inverse_a * log_z);
      sum += u;
      powers += std::exp(r * log_z);
      direct += u * std::exp(log_y - log_z);
    }
    const double scale = std::pow(powers, 1 - 2 / q), excess = sum * scale - 1;
    const double slope = scale * (direct + (q - 2) * sum * sum * (std::exp(log_y) / powers));
    (excess > 0 ? high : low) = log_y;
    double next = log_y + a * std::log1p(-excess / slope);
    const bool done = std::abs(excess) <= kSquaredNormTolerance;
    if (!done && !(next > low && next < high)) {
      next = a * std::log((std::exp(low / a) + std::exp(high / a)) / 2);
      if (!(next > low && next < high)) break;
    }
    if (next < infinity && next == next) log_y = next;
    if (done) break;
  }
  double total = 0;
  for (int64_t i = 0; i < size; ++i) total += std::exp(inverse_a * log_sum(log_y, log_rise[i]));
  for (int64_t j = 0; j < n; ++j) {
    const double rise = static_cast<double>(x[j]) - lowest;
    const double log_z = rise >= 0 ? log_sum(log_y, std::log(rise)) : -infinity;
    p[j] = static_cast<T>(std::exp(inverse_a * log_z) / total);
  }
}

constexpr size_t squared_norm_scratch_bytes(int64_t n) { return 2 * n * sizeof(double); }

template <class T>
inline void sq_pnorm_max_row(const T* x, int64_t n, double q, T* p, double* scratch) {
  double top;
  if (finish_bad_row(x, n, q >= 1, p, &top)) return;
  if (q == 1) return argmax_row(x, n, static_cast<T>(top), p);
  if (q <= 2) return squared_norm_flat(x, n, top, q, p, scratch);
  return squared_norm_steep(x, n, top, q, p, scratch);
}

template <class T>
inline void sq_pnorm_max_backward_row(const T* p, const T* g, int64_t n, double q, T* grad_x,
                                      double* scratch) {
  if (q > 1 && q <= 1e18) {
    const auto scale = [&](double peak, double powers) {
      return 1 / ((q - 1) * peak * peak * std::pow(powers, 2 / q));
    };
    return power_backward_row(p, g, n, q, 2 - q, scale, grad_x, scratch);
  }
  // q = 1 is flat. At inf the entries of largest mass move together, and the others against them.
  const double peak = peak_of(p, n);
  double top = 0, rest = 0, along = 0, against = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] == 0 || q == 1) continue;
    (p[j] == peak ? top : rest) += 1;
    (p[j] == peak ? along : against) += g[j];
  }
  const double ratio = rest > 0 ? top / rest : 0, pull = rest > 0 ? along - ratio * against : 0;
  for (int64_t j = 0; j < n; ++j) {
    const double direction = p[j] == 0 || rest == 0 ? 0 : (p[j] == peak ? 1 : -ratio);
    grad_x[j] = static_cast<T>(direction == 0 ? 0 : direction * pull) + (p[j] - p[j]);
  }
}

template <class T>
int sq_pnorm_max_forward(const T* x, T* p, const Layout& at) {
  return for_contiguous_rows(x, p, at, squared_norm_scratch_bytes(at.n),
                             [&](int64_t row, const T* in, T* out, void* memory) {
                               sq_pnorm_max_row(in, at.n, at.parameter_of(row), out,
                                                static_cast<double*>(memory));
                             });
}

// The parameter is a number and has no gradient: NaN, if asked for one.
template <class T>
int sq_pnorm_max_backward(const T* p, const T* g, T* grad_x, double* grad_q, const Layout& at) {
  return for_contiguous_pairs(
      p, g, grad_x, at, at.n * sizeof(double),
      [&](int64_t row, const T* value, const T* grad, T* out, void* memory) {
        sq_pnorm_max_backward_row(value, grad, at.n, at.parameter_of(row), out,
                                  static_cast<double*>(memory));
        if (grad_q != nullptr) grad_q[row] = kNaN<double>;
      });
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
