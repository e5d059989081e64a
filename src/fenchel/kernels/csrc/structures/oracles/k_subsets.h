// Subsets of k out of n items; layout: n, k; size: how many of the n items are there.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "../oracle.h"

namespace fenchel {
namespace FENCHEL_ISA {

class KSubsetsOracle {
 public:
  KSubsetsOracle(const int64_t* layout, const int64_t* size) : k_(layout[1]), order_(size[0]) {}

  static int64_t most_parts(const int64_t* layout) { return layout[1]; }

  int64_t argmax(const double* scores, int32_t* parts) {
    const int64_t n = static_cast<int64_t>(order_.size());
    if (k_ > n) return kNone;
    for (int64_t i = 0; i < n; ++i) order_[i] = static_cast<int32_t>(i);
    const auto better = [&](int32_t a, int32_t b) {
      return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    };
    std::nth_element(order_.begin(), order_.begin() + k_ - 1, order_.end(), better);
    std::sort(order_.begin(), order_.begin() + k_);
    for (int64_t i = 0; i < k_; ++i) {
      if (scores[order_[i]] == -std::numeric_limits<double>::infinity()) return kNone;
      parts[i] = order_[i];
    }
    return k_;
  }

 private:
  int64_t k_;
  std::vector<int32_t> order_;
};

template <>
struct OracleOf<FENCHEL_K_SUBSETS> {
  using type = KSubsetsOracle;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
