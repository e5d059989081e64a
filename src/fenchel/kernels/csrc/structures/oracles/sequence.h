// Linear chains of tags. Layout: T, K, fenchel_transitions, has start, has end; size: the length.
//
// Scores of one instance: emissions (T, K), transitions [from, to], start (K), end (K); a block
// that the layout says is not there is left out. A position behind the length has no part.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "../../simd.h"
#include "../oracle.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Where the blocks of an instance begin; what is absent has a negative offset.
struct SequenceLayout {
  int64_t positions, tags, kind, start = -1, end = -1, parts;
  int64_t length;

  SequenceLayout(const int64_t* layout, const int64_t* size)
      : positions(layout[0]), tags(layout[1]), kind(layout[2]), length(size[0]) {
    parts = positions * tags;
    if (kind == FENCHEL_SHARED) parts += tags * tags;
    if (kind == FENCHEL_EACH_POSITION) parts += (positions - 1) * tags * tags;
    if (layout[3]) {
      start = parts;
      parts += tags;
    }
    if (layout[4]) {
      end = parts;
      parts += tags;
    }
  }

  // The first of the K x K scores from position t to t + 1.
  int64_t transitions(int64_t t) const {
    return positions * tags + (kind == FENCHEL_EACH_POSITION ? t * tags * tags : 0);
  }

  // The parts of a sequence of tags; returns how many.
  int64_t parts_of(const int32_t* path, int32_t* parts_out) const {
    int64_t n = 0;
    for (int64_t t = 0; t < length; ++t) {
      parts_out[n++] = static_cast<int32_t>(t * tags + path[t]);
    }
    if (kind != FENCHEL_NO_TRANSITIONS) {
      for (int64_t t = 0; t + 1 < length; ++t) {
        parts_out[n++] = static_cast<int32_t>(transitions(t) + path[t] * tags + path[t + 1]);
      }
    }
    if (start >= 0) parts_out[n++] = static_cast<int32_t>(start + path[0]);
    if (end >= 0) parts_out[n++] = static_cast<int32_t>(end + path[length - 1]);
    return n;
  }

  static int64_t most_parts(const int64_t* layout) {
    return layout[0] + (layout[2] != FENCHEL_NO_TRANSITIONS ? layout[0] - 1 : 0) +
           (layout[3] != 0) + (layout[4] != 0);
  }
};

// out[j] = max over i of from[i] + matrix[i, j], a vector of columns at a time.
inline void max_plus(const double* from, const double* matrix, int64_t k, double* out) {
  constexpr int lanes = kLanes<double>;
  if (k < lanes) {
    Vec<double> best = splat(-kInf<double>);
    for (int64_t i = 0; i < k; ++i) {
      const Vec<double> row = load_part(matrix + i * k, static_cast<int>(k), -kInf<double>);
      best = larger<double>(row + from[i], best);
    }
    store_part(out, best, static_cast<int>(k));
    return;
  }
  int64_t j = 0;
  for (; j + 4 * lanes <= k; j += 4 * lanes) {
    Vec<double> best[4];
    for (int v = 0; v < 4; ++v) best[v] = splat(-kInf<double>);
    for (int64_t i = 0; i < k; ++i) {
      for (int v = 0; v < 4; ++v) {
        best[v] = larger<double>(load(matrix + i * k + j + v * lanes) + from[i], best[v]);
      }
    }
    for (int v = 0; v < 4; ++v) store(out + j + v * lanes, best[v]);
  }
  for (; j < k; j += lanes) {
    const int64_t at = std::min(j, k - lanes);  // the last vector may cover columns again
    Vec<double> best = splat(-kInf<double>);
    for (int64_t i = 0; i < k; ++i) {
      best = larger<double>(load(matrix + i * k + at) + from[i], best);
    }
    store(out + at, best);
  }
}

// Viterbi. Only the best scores are kept: the way back looks for the tags they came from, one
// column a position, and takes the lowest of equals.
class SequenceOracle {
 public:
  SequenceOracle(const int64_t* layout, const int64_t* size)
      : at_(layout, size), best_(at_.length * at_.tags), path_(at_.length) {}

  static int64_t most_parts(const int64_t* layout) { return SequenceLayout::most_parts(layout); }

  int64_t argmax(const double* scores, int32_t* parts) {
    const int64_t k = at_.tags, length = at_.length;
    const StopCheck check;
    for (int64_t t = 0; t < length; ++t) {
      check(k * k);
      double* best = best_.data() + t * k;
      if (t > 0 && at_.kind != FENCHEL_NO_TRANSITIONS) {
        max_plus(best - k, scores + at_.transitions(t - 1), k, best);
      } else {
        const bool first = t == 0 && at_.start >= 0;
        for (int64_t j = 0; j < k; ++j) best[j] = first ? scores[at_.start + j] : 0.0;
      }
      for (int64_t j = 0; j < k; ++j) best[j] += scores[t * k + j];
    }
    double* last = best_.data() + (length - 1) * k;
    if (at_.end >= 0) {
      for (int64_t j = 0; j < k; ++j) last[j] += scores[at_.end + j];
    }
    for (int64_t t = length - 1; t >= 0; --t) {
      const double* best = best_.data() + t * k;
      const bool onward = t + 1 < length && at_.kind != FENCHEL_NO_TRANSITIONS;
      const double* column = onward ? scores + at_.transitions(t) + path_[t + 1] : nullptr;
      double highest = -std::numeric_limits<double>::infinity();
      for (int64_t i = 0; i < k; ++i) {
        const double here = onward ? best[i] + column[i * k] : best[i];
        if (here > highest) {
          highest = here;
          path_[t] = static_cast<int32_t>(i);
        }
      }
      if (highest == -std::numeric_limits<double>::infinity()) return kNone;
    }
    return at_.parts_of(path_.data(), parts);
  }

 private:
  SequenceLayout at_;
  std::vector<double> best_;
  std::vector<int32_t> path_;
};

template <>
struct OracleOf<FENCHEL_SEQUENCE> {
  using type = SequenceOracle;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
