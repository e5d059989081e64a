// Monotonic paths from one corner of a matrix to the other, by steps (1,0), (0,1) and (1,1);
// layout: m, n; size: rows, columns.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "../oracle.h"

namespace fenchel {
namespace FENCHEL_ISA {

class AlignmentOracle {
 public:
  AlignmentOracle(const int64_t* layout, const int64_t* size)
      : stride_(layout[1]), m_(size[0]), n_(size[1]), best_(n_ + 1), step_(m_ * n_) {}

  static int64_t most_parts(const int64_t* layout) {
    return std::max<int64_t>(0, layout[0] + layout[1] - 1);
  }

  // On ties a diagonal step comes before one down, and one down before one to the right.
  int64_t argmax(const double* scores, int32_t* parts) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    std::fill(best_.begin(), best_.end(), -inf);  // best_[j + 1]: the best path to column j
    best_[0] = 0.0;                               // before the first cell
    const StopCheck check;
    for (int64_t i = 0; i < m_; ++i) {
      check(n_);
      double diagonal = best_[0], left = -inf;
      best_[0] = -inf;
      const double* row = scores + i * stride_;
      uint8_t* steps = step_.data() + i * n_;
      for (int64_t j = 0; j < n_; ++j) {
        const double up = best_[j + 1];
        const bool is_up = up > diagonal;
        const double before = is_up ? up : diagonal;
        const bool is_left = left > before;
        steps[j] = is_left ? kLeft : is_up ? kUp : kDiagonal;
        left = row[j] + (is_left ? left : before);
        diagonal = up;
        best_[j + 1] = left;
      }
    }
    if (best_[n_] == -inf) return kNone;
    int64_t i = m_ - 1, j = n_ - 1, used = 0;
    for (;;) {
      parts[used++] = static_cast<int32_t>(i * stride_ + j);
      if (i == 0 && j == 0) break;
      const uint8_t step = step_[i * n_ + j];
      i -= step != kLeft;
      j -= step != kUp;
    }
    std::reverse(parts, parts + used);
    return used;
  }

 private:
  static constexpr uint8_t kDiagonal = 0, kUp = 1, kLeft = 2;

  int64_t stride_, m_, n_;
  std::vector<double> best_;
  std::vector<uint8_t> step_;
};

template <>
struct OracleOf<FENCHEL_ALIGNMENT> {
  using type = AlignmentOracle;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
