// The logistic budget of one row, in double: p = sigmoid(x - tau) with sum(p) = k.
//
// The sum is smooth and falls in tau, and its error bounds that of every p. Measured from the
// ceil(k)-th largest score, tau is small wherever an entry lies between 0 and 1 at all; so every
// score that matters is exact, however large it is. Newton inside a bracket.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>

#include "../row_start.h"
#include "../rows.h"
#include "../structures/exp_log.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Beyond this distance a sigmoid is 0 or 1 to more digits than anyone sees.
constexpr double kSaturated = 700;

// sigmoid(v) from e = exp(-|v|), without overflow or cancellation.
inline Vec<double> sigmoid_of(Vec<double> v, Vec<double> e) {
  return (v < 0.0 ? e : splat(1.0)) / (1.0 + e);
}

inline Vec<double> exp_minus_abs(Vec<double> v) { return vector_exp(v < 0.0 ? v : -v); }

// u is (blocks * lanes) long; what is behind the row is -inf and gets 0.
template <class T>
inline void logistic_budget_row(const T* x, int64_t n, double k, T* p, double* u) {
  double top;
  if (finish_bad_row(x, n, k >= 0, p, &top)) return;
  int64_t kept = 0;
  for (int64_t j = 0; j < n; ++j) kept += x[j] > -kInf<T>;
  if (static_cast<double>(kept) <= k || k == 0) {
    for (int64_t j = 0; j < n; ++j) p[j] = x[j] > -kInf<T> && k != 0 ? T(1) : T(0);
    return;
  }
  const int64_t rank = static_cast<int64_t>(std::ceil(k)) - 1;
  for (int64_t j = 0; j < n; ++j) u[j] = x[j];
  std::nth_element(u, u + rank, u + n, std::greater<double>());
  const double pivot = u[rank];
  double lowest = kInf<double>;
  constexpr int lanes = kLanes<double>;
  const int64_t padded = (n + lanes - 1) / lanes * lanes;
  for (int64_t j = 0; j < padded; ++j) {
    u[j] = j < n ? static_cast<double>(x[j]) - pivot : -kInf<double>;
    if (u[j] > -kInf<double>) lowest = std::min(lowest, u[j]);
  }
  // Were all scores the lowest, or all the highest, tau would be at these ends.
  const double even = std::log(static_cast<double>(kept) / k - 1);
  double low = std::max(lowest + even, -kSaturated);
  double high = std::min((top - pivot) + even, kSaturated);
  if (!(low < high)) low = high = low / 2 + high / 2;

  double tau = std::min(std::max(even, low), high), rest = 0;
  for (int step = 0; step < 200; ++step) {
    Vec<double> sums = splat(0.0), slopes = splat(0.0);
    for (int64_t j = 0; j < padded; j += lanes) {
      const Vec<double> v = load(u + j) - tau;
      const Vec<double> e = exp_minus_abs(v);
      sums += sigmoid_of(v, e);
      slopes += e / ((1.0 + e) * (1.0 + e));
    }
    const double excess = sum_lanes<double>(sums) - k, slope = sum_lanes<double>(slopes);
    if (excess >= 0) low = tau;
    if (excess <= 0) high = tau;
    rest = slope > 0 ? excess / slope : 0;
    const double newton = tau + rest, middle = low / 2 + high / 2;
    // A step this small moves no p by more than a rounding of the sum.
    if (std::abs(excess) <= 4 * std::numeric_limits<double>::epsilon() * std::max(1.0, k)) break;
    if (!(middle > low && middle < high)) break;
    const bool inside = slope > 0 && newton > low && newton < high;
    tau = inside && step % 3 != 2 ? newton : middle;
  }
  if (!(std::abs(rest) < 1e-6)) rest = 0;
  for (int64_t j = 0; j < padded; j += lanes) {
    const Vec<double> v = (load(u + j) - tau) - rest;
    const Vec<double> q = sigmoid_of(v, exp_minus_abs(v));
    for (int64_t lane = 0; lane < lanes && j + lane < n; ++lane) {
      p[j + lane] = static_cast<T>(q[lane]);
    }
  }
}

// With s = p (1 - p): s times g less its mean under s; in k: that mean.
template <class T>
inline void logistic_budget_backward_row(const T* p, const T* g, int64_t n, T* grad_x,
                                         double* grad_k) {
  double sum = 0, total = 0;
  for (int64_t j = 0; j < n; ++j) {
    const double value = p[j], s = value * (1 - value);
    if (s == 0) continue;  // a gradient that is not finite does not count there
    sum += s * static_cast<double>(g[j]);
    total += s;
  }
  const double mean = total == 0 ? 0 : sum / total;
  for (int64_t j = 0; j < n; ++j) {
    const double value = p[j], s = value * (1 - value);
    grad_x[j] = s == 0 ? T(0) : static_cast<T>(s * (static_cast<double>(g[j]) - mean));
  }
  if (grad_k != nullptr) *grad_k = mean;
}

template <class T>
int logistic_budget_forward(const T* x, T* p, const Layout& at) {
  const size_t bytes = (at.n + kLanes<double>)*sizeof(double);
  return for_contiguous_rows(x, p, at, bytes, [&](int64_t row, const T* in, T* out, void* memory) {
    logistic_budget_row(in, at.n, at.parameter_of(row), out, static_cast<double*>(memory));
  });
}

template <class T>
int logistic_budget_backward(const T* p, const T* g, T* grad_x, double* grad_k, const Layout& at) {
  return for_contiguous_pairs(
      p, g, grad_x, at, 0, [&](int64_t row, const T* value, const T* grad, T* out, void*) {
        logistic_budget_backward_row(value, grad, at.n, out,
                                     grad_k == nullptr ? nullptr : grad_k + row);
      });
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
