// Maps that fuse entries into groups: a prox that gives groups of equal value, then the projection
// onto the simplex. One row at a time, in double.
//
// Both report the group of every entry (-1 for a masked one), because float equality of the output
// would not do: groups that are equal by chance are not fused.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "entmax_row.h"
#include "simd.h"

namespace fenchel {
namespace FENCHEL_ISA {

// A row without its masked entries: the scores that are left, and what is found of each.
struct GroupScratch {
  double *scores, *levels, *slopes;  // of n entries
  double *knots, *rise, *offset;     // of 2 n + 2
  double *low, *high;
  int32_t *place, *group;

  static size_t bytes(int64_t n) {
    return (5 * n + 3 * (2 * n + 2)) * sizeof(double) + 2 * n * sizeof(int32_t);
  }
  GroupScratch(void* memory, int64_t n) {
    scores = static_cast<double*>(memory);
    levels = scores + n;
    slopes = levels + n;
    low = slopes + n;
    high = low + n;
    knots = high + n;
    rise = knots + 2 * n + 2;
    offset = rise + 2 * n + 2;
    place = reinterpret_cast<int32_t*>(offset + 2 * n + 2);
    group = place + n;
  }
};

// argmin over z of 1/2 ||z - x||^2 + lambda sum |z_{i+1} - z_i|, in O(n): dynamic programming over
// the derivative of the best cost so far, which is piecewise linear and clipped to [-lambda, lambda]
// at each step. `knots` holds its breakpoints in a double-ended queue, `rise` and `offset` how slope
// and intercept change there; `low` and `high` are where each step clips.
//
// Writes into side[k] whether z_k is fused with z_{k+1} (0), above it (1) or below it (-1).
inline void fuse_neighbours(const double* x, int64_t n, double lambda, const GroupScratch& at_hand,
                            int32_t* side) {
  double *knots = at_hand.knots, *rise = at_hand.rise, *offset = at_hand.offset;
  double *low = at_hand.low, *high = at_hand.high;
  int64_t left = n, right = n + 1;  // the queue is knots[left .. right], growing to both sides
  low[0] = x[0] - lambda;
  high[0] = x[0] + lambda;
  knots[left] = low[0];
  knots[right] = high[0];
  rise[left] = 1;
  offset[left] = -x[0] + lambda;
  rise[right] = -1;
  offset[right] = x[0] + lambda;
  double first_rise = 1, first_offset = -lambda - x[1], last_rise = -1, last_offset = -lambda + x[1];
  for (int64_t k = 1; k + 1 < n; ++k) {
    // From the left: where the derivative reaches -lambda.
    int64_t from = left;
    double slope = first_rise, at = first_offset;
    while (from <= right && slope * knots[from] + at <= -lambda) {
      slope += rise[from];
      at += offset[from];
      ++from;
    }
    // From the right: where it reaches lambda (signs are mirrored on that side).
    int64_t to = right;
    double back_slope = last_rise, back_at = last_offset;
    while (to >= from && -back_slope * knots[to] - back_at >= lambda) {
      back_slope += rise[to];
      back_at += offset[to];
      --to;
    }
    low[k] = (-lambda - at) / slope;
    left = from - 1;
    knots[left] = low[k];
    high[k] = (lambda + back_at) / -back_slope;
    right = to + 1;
    knots[right] = high[k];
    rise[left] = slope;
    offset[left] = at + lambda;
    rise[right] = back_slope;
    offset[right] = back_at + lambda;
    first_rise = 1;
    first_offset = -lambda - x[k + 1];
    last_rise = -1;
    last_offset = -lambda + x[k + 1];
  }
  int64_t from = left;
  double slope = first_rise, at = first_offset;
  while (from <= right && slope * knots[from] + at <= 0) {
    slope += rise[from];
    at += offset[from];
    ++from;
  }
  double z = -at / slope;
  for (int64_t k = n - 2; k >= 0; --k) {
    side[k] = z < low[k] ? 1 : (z > high[k] ? -1 : 0);
    z = std::min(std::max(z, low[k]), high[k]);
  }
}

// Without a penalty nothing is fused; levels would begin to move towards their neighbours.
inline void single_groups(const GroupScratch& row, int64_t count) {
  const auto side = [&](int64_t i) {  // of entry i, seen from entry i + 1
    if (i < 0 || i + 1 >= count || row.place[i + 1] != row.place[i] + 1) return 0.0;
    const double gap = row.scores[i] - row.scores[i + 1];
    return gap > 0 ? 1.0 : (gap < 0 ? -1.0 : 0.0);
  };
  for (int64_t i = 0; i < count; ++i) {
    row.levels[i] = row.scores[i];
    row.slopes[i] = side(i - 1) - side(i);
    row.group[i] = static_cast<int32_t>(i);
  }
}

// Fused lasso: the group of each entry, the level of its group and that level's slope in lambda.
// Neighbours with a masked entry between them are no neighbours.
inline void fused_groups(const GroupScratch& row, int64_t count, double lambda) {
  if (lambda == 0) return single_groups(row, count);
  int32_t groups = 0;
  for (int64_t first = 0; first < count;) {
    int64_t last = first + 1;
    while (last < count && row.place[last] == row.place[last - 1] + 1) ++last;
    const int64_t n = last - first;
    int32_t* side = row.group + first;  // until it is overwritten, from the left
    if (n > 1) fuse_neighbours(row.scores + first, n, lambda, row, side);
    int32_t left = 0;  // the side that the entry before the group is on
    for (int64_t i = first; i < last;) {
      int64_t end = i;
      double sum = row.scores[i];
      while (end + 1 < last && row.group[end] == 0) sum += row.scores[++end];
      const int32_t right = end + 1 < last ? row.group[end] : 0;
      const double size = static_cast<double>(end + 1 - i);
      const double slope = static_cast<double>(left - right) / size;
      for (int64_t j = i; j <= end; ++j) {
        row.levels[j] = sum / size + lambda * slope;
        row.slopes[j] = slope;
        row.group[j] = groups;
      }
      ++groups;
      left = right;
      i = end + 1;
    }
    first = last;
  }
}

// OSCAR on the simplex, where no weight is negative: scores in descending order, less lambda (n - i)
// at rank i, pooled until they descend. Equal scores are always pooled. The penalties are taken from
// their mean, which the projection takes away again: large ones would cost digits.
inline void oscar_groups(const GroupScratch& row, int64_t count, double lambda, int32_t* order) {
  for (int64_t i = 0; i < count; ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order, order + count, [&](int32_t a, int32_t b) {
    return row.scores[a] > row.scores[b] || (row.scores[a] == row.scores[b] && a < b);
  });
  // Blocks on a stack: where they start, the sum of their scores, of their penalties.
  double *sums = row.knots, *penalties = row.rise;
  int32_t* starts = reinterpret_cast<int32_t*>(row.offset);
  int64_t top = -1;
  const auto mean = [&](int64_t block, int64_t end) {
    const double size = static_cast<double>(end - starts[block]);
    return (sums[block] - lambda * penalties[block]) / size;
  };
  for (int64_t i = 0; i < count; ++i) {
    ++top;
    starts[top] = static_cast<int32_t>(i);
    sums[top] = row.scores[order[i]];
    penalties[top] = static_cast<double>(count - 1) / 2 - static_cast<double>(i);
    while (top > 0 && mean(top - 1, starts[top]) <= mean(top, i + 1)) {
      sums[top - 1] += sums[top];
      penalties[top - 1] += penalties[top];
      --top;
    }
  }
  for (int64_t block = 0; block <= top; ++block) {
    const int64_t end = block < top ? starts[block + 1] : count;
    const double size = static_cast<double>(end - starts[block]);
    for (int64_t i = starts[block]; i < end; ++i) {
      row.levels[order[i]] = (sums[block] - lambda * penalties[block]) / size;
      row.slopes[order[i]] = -penalties[block] / size;
      row.group[order[i]] = static_cast<int32_t>(block);
    }
  }
}

// tau of the projection of count levels onto the simplex, relative to their maximum.
inline double simplex_threshold(const double* levels, int64_t count, double top) {
  double tau = -1;
  for (int step = 0; step < 200; ++step) {
    double sum = 0, size = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double above = (levels[i] - top) - tau;
      sum += above > 0 ? above : 0;
      size += above > 0 ? 1 : 0;
    }
    const double next = tau + (sum - 1) / size;
    if (!(next > tau)) break;
    tau = next;
  }
  return tau;
}

enum class Groups { kFused, kOscar };

// p, the group of each entry (-1 if masked) and, if wanted, how its level moves with lambda.
template <class T>
inline void groups_row(Groups kind, const T* x, int64_t n, double lambda, T* p, int32_t* group,
                       T* slope, void* memory) {
  const GroupScratch row(memory, n);
  int64_t count = 0;
  bool bad = !(lambda >= 0);
  for (int64_t j = 0; j < n; ++j) {
    bad |= x[j] != x[j] || x[j] == kInf<T>;
    group[j] = -1;
    if (slope != nullptr) slope[j] = 0;
    if (x[j] > -kInf<T>) {
      row.scores[count] = x[j];
      row.place[count++] = static_cast<int32_t>(j);
    }
  }
  if (bad) return fill_row(p, n, kNaN<T>);
  fill_row(p, n, T(0));
  if (count == 0) return;
  // Large scores would leave few digits for what lambda does: from their maximum on.
  const double top = *std::max_element(row.scores, row.scores + count);
  for (int64_t i = 0; i < count; ++i) row.scores[i] -= top;
  // A penalty that fuses everything: more of it changes nothing, and would cost all digits.
  const double depth = -*std::min_element(row.scores, row.scores + count);
  lambda = std::min(lambda, (depth + 1) * static_cast<double>(count));
  if (kind == Groups::kFused) {
    fused_groups(row, count, lambda);
  } else {
    oscar_groups(row, count, lambda, reinterpret_cast<int32_t*>(row.low));
  }
  const double highest = *std::max_element(row.levels, row.levels + count);
  const double tau = simplex_threshold(row.levels, count, highest);
  for (int64_t i = 0; i < count; ++i) {
    const int32_t j = row.place[i];
    p[j] = static_cast<T>(std::max((row.levels[i] - highest) - tau, 0.0));
    group[j] = row.group[i];
    if (slope != nullptr) slope[j] = static_cast<T>(row.slopes[i]);
  }
}

// grad on the support less its mean, averaged within each group: the Jacobian is symmetric.
template <class T>
inline void groups_backward_row(const T* p, const int32_t* group, const T* grad, int64_t n,
                                T* grad_x, void* memory) {
  double* sums = static_cast<double*>(memory);
  double* sizes = sums + n;
  double total = 0, support = 0;
  for (int64_t j = 0; j < n; ++j) {
    sums[j] = sizes[j] = 0;
    if (p[j] != 0) {
      total += static_cast<double>(grad[j]) + static_cast<double>(p[j] - p[j]);
      support += 1;
    }
  }
  const double mean = support > 0 ? total / support : 0;
  for (int64_t j = 0; j < n; ++j) {
    if (group[j] < 0) continue;
    sums[group[j]] += p[j] != 0 ? static_cast<double>(grad[j]) - mean : 0;
    sizes[group[j]] += 1;
  }
  for (int64_t j = 0; j < n; ++j) {
    const bool in = group[j] >= 0;
    grad_x[j] = in ? static_cast<T>(sums[group[j]] / sizes[group[j]]) : p[j] - p[j];
  }
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
