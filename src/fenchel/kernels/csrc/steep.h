// Entmax for alpha > 2, one row, in double. See reference/_entmax.py for the maths.
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

// Whether the entries above score[k] (sorted, descending) alone sum to 1 with the threshold there.
inline bool filled_above(const double* score, int64_t k, double a) {
  double sum = 0;
  for (int64_t i = 0; i < k && sum < 1; ++i) {
    const double rise = a * (score[i] - score[k]);
    if (rise > 0) sum += std::exp(std::log(rise) / a);
  }
  return sum >= 1;
}

// Drops entries that sparsemax would drop, as many as are left returned: with its threshold t,
// where the u = [x - t]+ sum to 1, the (a u)^(1/a) sum to 1 or more, as u <= 1 < a. So the
// threshold lies above t, which the means of ever fewer entries reach from below; the slack is for
// their rounding.
inline int64_t within_sparsemax(double* score, int64_t count, double top) {
  constexpr double slack = 1e-9;
  for (int64_t before = count + 1; count < before;) {
    before = count;
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += score[i] - top;
    const double floor = (sum - 1) / static_cast<double>(count) - slack;
    count = std::remove_if(score, score + count, [&](double x) { return x - top < floor; }) - score;
  }
  return count;
}

// Reads x (stride x_stride), writes p (stride p_stride); `top` is the row's finite maximum. Works
// with differences of scores, which are exact where it matters, not with depths below the maximum.
template <class T>
inline void steep_row(const T* x, int64_t x_stride, int64_t n, double top, double alpha, T* p,
                      int64_t p_stride, double* scratch) {
  const double a = alpha - 1, reach = 1 / a;
  double* score = scratch;
  double* log_rise = scratch + n;
  int64_t candidates = 0;
  for (int64_t j = 0; j < n; ++j) {
    p[j * p_stride] = 0;
    const double value = x[j * x_stride];
    if (top - value < reach) score[candidates++] = value;
  }
  candidates = within_sparsemax(score, candidates, top);
  std::sort(score, score + candidates, [](double a, double b) { return a > b; });
  int64_t in = 0, out = candidates;  // score[in] is supported, score[out] is not
  while (out - in > 1) {
    const int64_t middle = in + (out - in) / 2;
    (filled_above(score, middle, a) ? out : in) = middle;
  }
  const int64_t size = in + 1;
  const double lowest = score[in];
  for (int64_t i = 0; i < size; ++i) log_rise[i] = std::log(a * (score[i] - lowest));

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
    const double value = x[j * x_stride];
    if (!(value >= lowest)) continue;
    const double rise = std::log(a * (value - lowest));
    const double high = std::max(low, rise), gap = std::min(low, rise) - high;
    p[j * p_stride] = static_cast<T>(std::exp((high + std::log1p(std::exp(gap))) / a));
  }
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
