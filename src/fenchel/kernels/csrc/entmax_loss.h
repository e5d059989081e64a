// The Fenchel-Young loss of entmax of one row, from the nonzeros of its p.
//
// With log_a(p) = (p^a - 1)/a, a = alpha - 1, the loss against class y is a sum of
// non-negative terms,
//     sum over j != y of p_j^alpha / alpha  +  (p_y^alpha - 1)/alpha - log_a(p_y),
// where below the threshold log_a(p_y) goes on as a straight line in the score. The derivation
// stands in regularizers/_tsallis_curve.py.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "curve.h"
#include "entmax_row.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Sum of p^alpha over packed p.
template <class T, class Power>
inline double sum_of(const T* p, int64_t count, const Power& power_of) {
  constexpr int lanes = kLanes<T>;
  Total<T> total;
  for (int64_t j = 0; j < count;) {
    const int64_t end = std::min<int64_t>(count, j + 2 * Total<T>::kBlock * lanes);
    Vec<T> first = splat(T(0)), second = first;
    for (; j + 2 * lanes <= end; j += 2 * lanes) {
      first += power_of(load(p + j));
      second += power_of(load(p + j + lanes));
    }
    for (; j < end; j += lanes) {
      const int part = static_cast<int>(std::min<int64_t>(lanes, end - j));
      first += power_of(load_part(p + j, part, T(0)));
    }
    total.add(first + second);
  }
  return total.over_lanes();
}

template <class T>
inline double sum_of_powers(const T* p, int64_t count, double alpha) {
  switch (kind_of(alpha)) {
    case AlphaKind::kSoftmax:
      return sum_of(p, count, [](Vec<T> v) { return v; });
    case AlphaKind::kSquare:
      return sum_of(p, count, [](Vec<T> v) { return v * sqrt<T>(v); });
    case AlphaKind::kLinear:
      return sum_of(p, count, [](Vec<T> v) { return v * v; });
    default: {
      const Vec<T> exponent = splat(static_cast<T>(std::min(alpha, 1e15)));
      const auto raised = [&](Vec<T> v) {
        const Mask<T> in = v > std::numeric_limits<T>::min();
        return in ? power<T>(in ? v : splat(T(1)), exponent) : splat(T(0));
      };
      return sum_of(p, count, raised);
    }
  }
}

inline double log_a(double p, double a) {
  const double y = std::log(p);
  return a * y == 0 ? y : std::expm1(a * y) / a;
}

// (p^alpha - 1)/alpha - log_a(p) for 0 < p <= 1: the terms of a series in log p where all cancels.
inline double gold_term(double p, double alpha) {
  const double y = std::log(p), a = alpha - 1;
  if (std::max(alpha, -a) * -y > 0.5) return std::expm1(alpha * y) / alpha - log_a(p, a);
  double high = alpha, low = a, power = y * y / 2, sum = 0;
  for (int k = 3; k < 20; ++k) {
    sum += (high - low) * power;
    high *= alpha;
    low *= a;
    power *= y / k;
  }
  return std::max(sum, 0.0);
}

// (exp(y) - 1)/y and its derivative.
inline double expm1_over(double y) { return y == 0 ? 1 : std::expm1(y) / y; }
inline double expm1_over_slope(double y) {
  if (std::abs(y) > 0.5) return (y * std::exp(y) - std::expm1(y)) / (y * y);
  double term = 0.5, sum = 0.5;  // (k + 1) y^k / (k + 2)!
  for (int k = 1; k < 17; ++k) {
    term *= y / (k + 2);
    sum += (k + 1) * term;
  }
  return sum;
}

// How the loss moves with alpha: that of minus Omega at fixed p.
template <class T>
inline double entmax_loss_slope(const ListedRow<T>& row, double alpha) {
  if (!(alpha < 1e15)) return 0;
  const double a = alpha - 1;
  double first = 0, second = 0;
  for (int64_t i = 0; i < row.count; ++i) {
    const double p = row.values[i], y = std::log(p);
    first += p * y * expm1_over(a * y);
    second += p * y * y * expm1_over_slope(a * y);
  }
  return first / (alpha * alpha) - second / alpha;
}

template <class T>
inline double entmax_loss_row(const T* x, const ListedRow<T>& row, int64_t target, double alpha) {
  if (row.count == 0) return kInf<double>;  // fully masked, and so is the target
  if (row.values[0] != row.values[0]) return kNaN<double>;
  const int32_t* begin = row.indices;
  const int64_t place =
      std::lower_bound(begin, begin + row.count, static_cast<int32_t>(target)) - begin;
  const bool supported = place < row.count && row.indices[place] == target;
  const bool argmax = !(alpha < 1e15);
  if (supported) {
    if (argmax) return 0;
    const double others = sum_of_powers(row.values, place, alpha) +
                          sum_of_powers(row.values + place + 1, row.count - place - 1, alpha);
    return others / alpha + gold_term(row.values[place], alpha);
  }
  const int64_t best = std::max_element(row.values, row.values + row.count) - row.values;
  const double lead = static_cast<double>(x[row.indices[best]]) - static_cast<double>(x[target]);
  if (argmax) return lead;
  const double all = sum_of_powers(row.values, row.count, alpha);
  return (all - 1) / alpha + lead - log_a(row.values[best], alpha - 1);
}

// Turns the list of a row's p into that of p - y, the gradient of the loss; zeros are left out.
template <class T>
inline void subtract_target(ListedRow<T>* row, int64_t target) {
  int32_t* end = row->indices + row->count;
  const int64_t place =
      std::lower_bound(row->indices, end, static_cast<int32_t>(target)) - row->indices;
  const int64_t behind = row->count - place;
  const auto shift = [&](int64_t to, int64_t from, int64_t count) {
    std::memmove(row->values + to, row->values + from, count * sizeof(T));
    std::memmove(row->indices + to, row->indices + from, count * sizeof(int32_t));
    row->count += to - from;
  };
  if (behind > 0 && row->indices[place] == target) {
    row->values[place] -= 1;
    if (row->values[place] == 0) shift(place, place + 1, behind - 1);
  } else {
    shift(place + 1, place, behind);
    row->values[place] = -1;
    row->indices[place] = static_cast<int32_t>(target);
  }
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
