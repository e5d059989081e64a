// Cuts into labelled segments. Layout: T, L, K, has transitions; size: the length.
//
// Scores of one instance: segments (T, L, K) by first position, length less 1 and label; then
// transitions [from, to] between the labels of neighbours, if the layout has them. A segment that
// would end behind the length has no part.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "../oracle.h"
#include "sequence.h"  // max_plus

namespace fenchel {
namespace FENCHEL_ISA {

// Viterbi over the positions. Only the best scores are kept: the way back looks for the segments
// they came from. On ties the lowest last label, then the shortest segments, then the lowest
// labels.
class SegmentationOracle {
 public:
  SegmentationOracle(const int64_t* layout, const int64_t* size)
      : longest_(layout[1]),
        labels_(layout[2]),
        pairs_(layout[3] != 0 ? layout[0] * layout[1] * layout[2] : -1),
        length_(size[0]),
        ended_((length_ + 1) * labels_),
        before_((length_ + 1) * labels_, 0.0) {}

  static int64_t most_parts(const int64_t* layout) {
    return layout[0] + (layout[3] != 0 ? layout[0] - 1 : 0);
  }

  int64_t argmax(const double* scores, int32_t* parts) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    const int64_t k = labels_;
    const StopCheck check;
    for (int64_t end = 1; end <= length_; ++end) {
      check(k * (k + longest_));
      double* ended = ended_.data() + end * k;
      std::fill(ended, ended + k, -inf);
      for (int64_t size = 1; size <= std::min(longest_, end); ++size) {
        const double* segment = scores + part(end - size, size);
        const double* before = before_.data() + (end - size) * k;
        for (int64_t j = 0; j < k; ++j) ended[j] = std::max(ended[j], segment[j] + before[j]);
      }
      if (end == length_) break;
      double* before = before_.data() + end * k;
      if (pairs_ >= 0) {
        max_plus(ended, scores + pairs_, k, before);
      } else {
        std::fill(before, before + k, *std::max_element(ended, ended + k));
      }
    }
    int64_t used = 0, label = first_highest(ended_.data() + length_ * k, nullptr);
    if (label < 0) return kNone;
    for (int64_t end = length_; end > 0;) {
      int64_t best = 0;
      double highest = -inf;
      for (int64_t size = 1; size <= std::min(longest_, end); ++size) {
        const double here =
            scores[part(end - size, size) + label] + before_[(end - size) * k + label];
        if (here > highest) {
          highest = here;
          best = size;
        }
      }
      if (best == 0) return kNone;
      end -= best;
      parts[used++] = static_cast<int32_t>(part(end, best) + label);
      if (end == 0) break;
      const double* column = pairs_ >= 0 ? scores + pairs_ + label : nullptr;
      const int64_t previous = first_highest(ended_.data() + end * k, column);
      if (previous < 0) return kNone;
      if (pairs_ >= 0) parts[used++] = static_cast<int32_t>(pairs_ + previous * k + label);
      label = previous;
    }
    std::sort(parts, parts + used);
    return used;
  }

 private:
  // The first label of a segment's scores.
  int64_t part(int64_t start, int64_t size) const {
    return (start * longest_ + size - 1) * labels_;
  }

  // The lowest label with the highest score, with a column of transitions added if there is one;
  // -1 if none is finite.
  int64_t first_highest(const double* ended, const double* column) const {
    int64_t best = -1;
    double highest = -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < labels_; ++i) {
      const double here = column == nullptr ? ended[i] : ended[i] + column[i * labels_];
      if (here > highest) {
        highest = here;
        best = i;
      }
    }
    return best;
  }

  int64_t longest_, labels_, pairs_, length_;
  std::vector<double> ended_, before_;
};

template <>
struct OracleOf<FENCHEL_SEGMENTATION> {
  using type = SegmentationOracle;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
