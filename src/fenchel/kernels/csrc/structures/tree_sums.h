// Sums over dependency trees for a batch: which algorithm, and which numbers it needs.
#pragma once

#include "matrix_tree.h"
#include "projective_sums.h"

namespace fenchel {
namespace FENCHEL_ISA {

template <class T>
struct NumberType {
  using type = T;
};

template <class Run>
void with_number(bool plain, bool slope, const Run& run) {
  if (plain) {
    if (slope) return run(NumberType<Dual>());
    return run(NumberType<double>());
  }
  if (slope) return run(NumberType<Scaled<Dual>>());
  return run(NumberType<Scaled<double>>());
}

inline void one_tree_sum(bool projective, const TreeScores& of, int64_t words, bool single_root,
                         double* value, double* marginals) {
  const bool slope = of.direction != nullptr;
  if (projective) {
    with_number(ProjectiveSums<double>::plain(of, words), slope, [&](auto number) {
      ProjectiveSums<typename decltype(number)::type> sums(of, words, single_root);
      *value = sums.log_sum();
      if (marginals != nullptr && *value > -std::numeric_limits<double>::infinity()) {
        sums.marginals(marginals);
      }
    });
    return;
  }
  TreeBlocks blocks;
  if (!blocks.split(of, words, single_root)) {
    *value = -std::numeric_limits<double>::infinity();
    return;
  }
  *value = 0;
  for (const TreeBlock& block : blocks.blocks()) {
    with_number(blocks.plain(block), slope, [&](auto number) {
      TreeElimination<typename decltype(number)::type> elimination(of, block, blocks.high());
      *value += marginals == nullptr ? elimination.log_sum() : elimination.marginals(marginals);
    });
  }
}

// The log-partition of each instance in `value`, -inf if there is no tree; and if `marginals` are
// wanted, these, or their derivative along `direction` if that is given; 0 if there is no tree.
inline int tree_sums(int projective, const double* scores, const double* direction, int64_t count,
                     int64_t parts, const int64_t* layout, const int64_t* sizes, double* value,
                     double* marginals) {
  const int64_t cubed = parts * layout[0];
  return for_instances(count, count * cubed, [&](int64_t i) {
    const TreeScores of{scores + i * parts, direction == nullptr ? nullptr : direction + i * parts,
                        layout[0] + 1};
    double* own = marginals == nullptr ? nullptr : marginals + i * parts;
    if (own != nullptr) std::fill_n(own, parts, 0.0);
    one_tree_sum(projective != 0, of, sizes[i], layout[1] != 0, value + i, own);
  });
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
