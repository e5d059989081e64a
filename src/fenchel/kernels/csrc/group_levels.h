// The proxes behind fusedmax and oscarmax: levels that are equal within groups, for the candidates
// of a row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "simd.h"

namespace fenchel {
namespace FENCHEL_ISA {

// The candidates of a row, and what is found of each.
struct GroupScratch {
  double *scores, *levels, *slopes;  // of n entries
  double *knots, *rise, *offset;     // of 2 n + 2
  double *low, *high;
  int32_t *place, *group;

  // Room for a whole vector is left behind the entries.
  static int64_t room(int64_t n) { return n + 16; }
  static size_t bytes(int64_t n) {
    return (5 * room(n) + 3 * (2 * n + 2)) * sizeof(double) + 2 * room(n) * sizeof(int32_t);
  }
  GroupScratch(void* memory, int64_t n) {
    scores = static_cast<double*>(memory);
    levels = scores + room(n);
    slopes = levels + room(n);
    low = slopes + room(n);
    high = low + room(n);
    knots = high + room(n);
    rise = knots + 2 * n + 2;
    offset = rise + 2 * n + 2;
    place = reinterpret_cast<int32_t*>(offset + 2 * n + 2);
    group = place + room(n);
  }
};

// argmin over z of 1/2 ||z - x||^2 + lambda sum |z_{i+1} - z_i|, in O(n): dynamic programming over
// the derivative of the best cost so far, which is piecewise linear and clipped to
// [-lambda, lambda] at each step. `knots` holds its breakpoints in a double-ended queue, `rise` and
// `offset` how slope and intercept change there; `low` and `high` are where each step clips.
//
// Writes into side[k] whether z_k is fused with z_{k+1} (0), above it (1) or below it (-1).
inline void fuse_neighbours(const double* x, int64_t n, double lambda, const GroupScratch& at_hand,
                            int32_t* side) {
  if (n == 2) {
    const double gap = x[0] - x[1];
    side[0] = gap > 2 * lambda ? 1 : (gap < -2 * lambda ? -1 : 0);
    return;
  }
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
  double first_rise = 1, first_offset = -lambda - x[1], last_rise = -1,
         last_offset = -lambda + x[1];
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

// Whether the entry next to a candidate, which is none itself, is there: it pulls down.
template <class T>
inline bool pulls(const T* x, int64_t n, int64_t j) {
  return j >= 0 && j < n && x[j] > -kInf<T>;
}

// Fused lasso: the group of each candidate, the level of its group and that level's slope in
// lambda. Neighbours with a masked entry between them are no neighbours.
template <class T>
inline void fused_groups(const T* x, int64_t n, const GroupScratch& row, int64_t count,
                         double lambda) {
  int32_t groups = 0;
  for (int64_t first = 0; first < count;) {
    int64_t last = first + 1;
    const int32_t before = pulls(x, n, row.place[first] - 1) ? -1 : 0;
    if (last == count || row.place[last] != row.place[first] + 1) {  // alone, as most are
      row.slopes[first] = before - (pulls(x, n, row.place[first] + 1) ? 1 : 0);
      row.levels[first] = row.scores[first] + lambda * row.slopes[first];
      row.group[first] = groups++;
      first = last;
      continue;
    }
    while (last < count && row.place[last] == row.place[last - 1] + 1) ++last;
    double *scores = row.scores, ends[2] = {scores[first], scores[last - 1]};
    const int32_t after = pulls(x, n, row.place[last - 1] + 1) ? 1 : 0;
    int32_t* side = row.group + first;  // until it is overwritten, from the left
    if (lambda == 0) {                  // nothing is fused; levels would begin to move
      for (int64_t i = first; i + 1 < last; ++i) {
        side[i - first] = scores[i] > scores[i + 1] ? 1 : (scores[i] < scores[i + 1] ? -1 : 0);
      }
    } else {
      scores[first] += lambda * before;
      scores[last - 1] -= lambda * after;
      fuse_neighbours(scores + first, last - first, lambda, row, side);
      scores[first] = ends[0];
      scores[last - 1] = ends[1];
    }
    int32_t left = before;  // the side that the entry before the group is on
    for (int64_t i = first; i < last;) {
      int64_t end = i;
      double sum = scores[i];
      while (lambda > 0 && end + 1 < last && row.group[end] == 0) sum += scores[++end];
      const int32_t right = end + 1 < last ? row.group[end] : after;
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

// The candidates in descending order of their scores, those that come first on ties.
inline void sort_descending(double* scores, int64_t count, int32_t* order) {
  if (count > 32) {
    for (int64_t i = 0; i < count; ++i) order[i] = static_cast<int32_t>(i);
    return std::sort(order, order + count, [&](int32_t a, int32_t b) {
      return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
    });
  }
  // The rank of each by counting, without a branch to mispredict.
  constexpr int lanes = kLanes<double>;
  store(scores + count, splat(-kInf<double>));
  for (int64_t i = 0; i < count; ++i) {
    int rank = 0;
    for (int64_t j = 0; j < count; j += lanes) {
      const Vec<double> other = load(scores + j);
      const uint32_t equal = bits<double>(other == splat(scores[i]));
      const int64_t before = std::min<int64_t>(std::max<int64_t>(i - j, 0), lanes);
      rank += __builtin_popcount(bits<double>(other > splat(scores[i]))) +
              __builtin_popcount(equal & ((1u << before) - 1));
    }
    order[rank] = static_cast<int32_t>(i);
  }
}

// OSCAR on the simplex, where no weight is negative: scores in descending order, less
// lambda (n - i) at rank i out of n, pooled until they descend. Equal scores are always pooled. The
// penalties are taken from their mean, which the projection takes away again: large ones would cost
// digits.
inline void oscar_groups(const GroupScratch& row, int64_t count, int64_t n, double lambda) {
  int32_t* order = reinterpret_cast<int32_t*>(row.low);
  sort_descending(row.scores, count, order);
  // Blocks on a stack: where they start, the sum of their scores, of their penalties.
  double *sums = row.knots, *penalties = row.rise;
  int32_t* starts = reinterpret_cast<int32_t*>(row.offset);
  int64_t top = -1;
  // Means are compared without dividing.
  const auto pooled = [&](int64_t block, int64_t end) {
    const double size = static_cast<double>(end - starts[block]);
    const double size_before = static_cast<double>(starts[block] - starts[block - 1]);
    return (sums[block - 1] - lambda * penalties[block - 1]) * size <=
           (sums[block] - lambda * penalties[block]) * size_before;
  };
  for (int64_t i = 0; i < count; ++i) {
    ++top;
    starts[top] = static_cast<int32_t>(i);
    sums[top] = row.scores[order[i]];
    penalties[top] = static_cast<double>(n - 1) / 2 - static_cast<double>(i);
    while (top > 0 && pooled(top, i + 1)) {
      sums[top - 1] += sums[top];
      penalties[top - 1] += penalties[top];
      --top;
    }
  }
  for (int64_t block = 0; block <= top; ++block) {
    const int64_t end = block < top ? starts[block + 1] : count;
    const double share =
        end - starts[block] == 1 ? 1 : 1.0 / static_cast<double>(end - starts[block]);
    const double level = (sums[block] - lambda * penalties[block]) * share;
    for (int64_t i = starts[block]; i < end; ++i) {
      row.levels[order[i]] = level;
      row.slopes[order[i]] = -penalties[block] * share;
      row.group[order[i]] = static_cast<int32_t>(block);
    }
  }
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
