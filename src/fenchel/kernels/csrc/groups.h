// Maps that fuse entries into groups: a prox that gives groups of equal value, then the projection
// onto the simplex. One row at a time, in double.
//
// Few entries get mass, and only their groups matter: what is certainly below the threshold of the
// projection is left out before the prox, which moves no level by more than a known reach. What
// is left out still pulls: for the fused lasso down, for OSCAR by its rank.
//
// Both report the group of every entry with mass (-1 for the others), because float equality of the
// output would not do: groups that are equal by chance are not fused.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "entmax_row.h"
#include "group_levels.h"
#include "simd.h"

namespace fenchel {
namespace FENCHEL_ISA {

// tau of the projection of count levels onto the simplex, relative to `top`, their maximum: from
// below, in at most `steps` steps. A vector's room behind the levels is written over.
inline double simplex_threshold(double* levels, int64_t count, double top, int steps) {
  constexpr int lanes = kLanes<double>;
  store(levels + count, splat(-kInf<double>));
  double tau = -1, before = 0;
  for (int step = 0; step < steps; ++step) {
    Vec<double> sum = splat(0.0), size = splat(0.0);
    for (int64_t i = 0; i < count; i += lanes) {
      const Vec<double> above = (load(levels + i) - top) - tau;
      const Mask<double> in = above > 0.0;
      sum += in ? above : splat(0.0);
      size += in ? splat(1.0) : splat(0.0);
    }
    const double entries = sum_lanes<double>(size);
    const double next = tau + (sum_lanes<double>(sum) - 1) / entries;
    if (!(next > tau)) break;
    tau = next;
    if (entries == before) break;  // the same entries again: this was their threshold
    before = entries;
  }
  return tau;
}

// The largest entry, how many are not masked, and whether the row is bad (a NaN or +inf).
template <class T>
inline bool survey(const T* x, int64_t n, T* top, int64_t* open) {
  constexpr int lanes = kLanes<T>;
  Vec<T> best = splat(-kInf<T>);
  Mask<T> nan = splat(T(0)) != splat(T(0));
  int64_t masked = 0;
  for (int64_t j = 0; j < n; j += lanes) {
    const int part = static_cast<int>(std::min<int64_t>(lanes, n - j));
    const Vec<T> v = part == lanes ? load(x + j) : load_part(x + j, part, T(0));
    nan |= v != v;
    masked += __builtin_popcount(bits<T>(v == splat(-kInf<T>)));
    best = larger<T>(part == lanes ? v : load_part(x + j, part, -kInf<T>), best);
  }
  *top = max_lanes<T>(best);
  *open = n - masked;
  return any<T>(nan) || *top == kInf<T>;
}

// Entries above top - reach into row.scores (less top) and row.place; their number.
template <class T>
inline int64_t candidates(const T* x, int64_t n, T top, double reach, const GroupScratch& row) {
  constexpr int lanes = kLanes<T>;
  // In T the difference is rounded: a little more is taken.
  const double margin = reach * (1 + 1e-5) + 1e-6 * std::fabs(static_cast<double>(top));
  const T limit = static_cast<T>(static_cast<double>(top) - margin);
  T* values = reinterpret_cast<T*>(row.levels);  // of n and a vector
  int64_t count = 0;
  for (int64_t j = 0; j < n; j += lanes) {
    const int part = static_cast<int>(std::min<int64_t>(lanes, n - j));
    const Vec<T> v = part == lanes ? load(x + j) : load_part(x + j, part, -kInf<T>);
    const uint32_t chosen = bits<T>(v > splat(limit));
    if (chosen == 0) continue;
    count += append<T>(values + count, row.place + count, v, chosen, static_cast<int32_t>(j));
  }
  for (int64_t i = 0; i < count; ++i) {
    row.scores[i] = static_cast<double>(values[i]) - static_cast<double>(top);
  }
  return count;
}

// Leaves out the candidates that are below a limit for certain; how many are left.
inline int64_t keep_above(double limit, const GroupScratch& row, int64_t count) {
  limit -= 1e-9 * (1 + std::fabs(limit));
  int64_t kept = 0;
  for (int64_t i = 0; i < count; ++i) {
    row.scores[kept] = row.scores[i];
    row.place[kept] = row.place[i];
    kept += row.scores[i] > limit ? 1 : 0;
  }
  return kept;
}

// p, the group of each entry with mass (-1 for the others) and, if wanted, how its level moves with
// lambda.
template <class T>
inline void groups_row(int kind, const T* x, int64_t n, double lambda, T* p, int32_t* group,
                       T* slope, void* memory) {
  const GroupScratch row(memory, n);
  T top;
  int64_t open;
  const bool bad = survey(x, n, &top, &open) || !(lambda >= 0);
  std::fill(group, group + n, -1);
  if (slope != nullptr) std::fill(slope, slope + n, T(0));
  fill_row(p, n, bad ? kNaN<T> : T(0));
  if (bad || open == 0) return;
  // Groups of scores near the largest double are found on a smaller scale, where no sum overflows.
  const bool huge = !(std::fabs(static_cast<double>(top)) < 1e300) || !(lambda < 1e300);
  const double scale = huge ? 0x1p-64 : 1;
  lambda = std::min(lambda, std::numeric_limits<double>::max()) * scale;
  if (lambda > static_cast<double>(open)) {
    // A penalty that fuses everything: more of it changes nothing, and would cost all digits.
    double depth = 0;
    for (int64_t j = 0; j < n; ++j) {
      if (x[j] > -kInf<T>) depth = std::max(depth, scale * static_cast<double>(top) - scale * x[j]);
    }
    lambda = std::min(lambda, (depth + 1) * static_cast<double>(open));
  }
  // No level is further from its score than this, up to a constant of all levels.
  const double reach = lambda * (kind == FENCHEL_FUSEDMAX ? 4.0 : static_cast<double>(open - 1));
  int64_t count = candidates(x, n, top, (1 + reach) / scale, row);
  if (huge) {
    for (int64_t i = 0; i < count; ++i) {
      row.scores[i] = scale * x[row.place[i]] - scale * static_cast<double>(top);
    }
  }
  const double tau_of_scores = simplex_threshold(row.scores, count, 0, 2);
  if (kind == FENCHEL_FUSEDMAX) {
    count = keep_above(tau_of_scores - reach, row, count);
    fused_groups(x, n, row, count, lambda);
  } else {
    // The last of k entries with mass is lifted by lambda (k - 1) at most, so their number bounds
    // itself.
    for (int round = 0; round < 2; ++round) {
      count = keep_above(tau_of_scores - lambda * static_cast<double>(count - 1), row, count);
    }
    oscar_groups(row, count, open, lambda);
  }
  double highest = *std::max_element(row.levels, row.levels + count);
  if (huge) {
    for (int64_t i = 0; i < count; ++i) row.levels[i] = (row.levels[i] - highest) / scale;
    highest = 0;
  }
  const double tau = simplex_threshold(row.levels, count, highest, 200);
  bool lost = false;  // scores or penalties near the largest double: a difference has overflowed
  for (int64_t i = 0; i < count; ++i) {
    const int32_t j = row.place[i];
    const T value = static_cast<T>((row.levels[i] - highest) - tau);
    lost |= value != value;
    p[j] = std::max(value, T(0));
    group[j] = row.group[i] | -static_cast<int32_t>(!(value > 0));  // without a branch
    if (slope != nullptr) slope[j] = value > 0 ? static_cast<T>(row.slopes[i]) : 0;
  }
  if (!lost) return;
  std::fill(group, group + n, -1);
  fill_row(p, n, kNaN<T>);
}

// grad on the support less its mean, averaged within each group: the Jacobian is symmetric.
template <class T>
inline void groups_backward_row(const T* p, const int32_t* group, const T* grad, int64_t n,
                                T* grad_x, void* memory) {
  double* sums = static_cast<double*>(memory);
  double* sizes = sums + n;
  int32_t* place = reinterpret_cast<int32_t*>(sizes + n);
  if (p[0] != p[0]) return fill_row(grad_x, n, kNaN<T>);  // then all of them are
  fill_row(grad_x, n, T(0));
  constexpr int lanes = kLanes<T>;
  int64_t support = 0;
  for (int64_t j = 0; j < n; j += lanes) {
    const int part = static_cast<int>(std::min<int64_t>(lanes, n - j));
    const Vec<T> v = part == lanes ? load(p + j) : load_part(p + j, part, T(0));
    for (uint32_t in = bits<T>(v != splat(T(0))); in != 0; in &= in - 1) {
      place[support++] = static_cast<int32_t>(j) + __builtin_ctz(in);
    }
  }
  double total = 0;
  for (int64_t i = 0; i < support; ++i) {
    const int32_t j = place[i];
    total += static_cast<double>(grad[j]);
    sums[group[j]] = sizes[group[j]] = 0;
  }
  const double mean = support > 0 ? total / static_cast<double>(support) : 0;
  for (int64_t i = 0; i < support; ++i) {
    const int32_t j = place[i];
    sums[group[j]] += static_cast<double>(grad[j]) - mean;
    sizes[group[j]] += 1;
  }
  for (int64_t i = 0; i < support; ++i) {
    const int32_t j = place[i];
    grad_x[j] = static_cast<T>(sums[group[j]] / sizes[group[j]]);
  }
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
