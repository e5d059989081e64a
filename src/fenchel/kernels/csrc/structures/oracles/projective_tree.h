// Projective dependency trees: no arc crosses another when the root stands left of all words.
// Layout, sizes and parts are those of tree.h.
//
// Eisner's spans: a span i..j of tokens has its head at one end. An incomplete span is an arc
// between its ends over two complete spans that meet; a complete one is an incomplete one and what
// its far end governs on that side. Every tree has one derivation, so the same recursion finds the
// best tree and sums over all of them. With several roots the root is token 0; with one it stays
// outside, and takes the word whose two complete spans cover the sentence.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "../oracle.h"

namespace fenchel {
namespace FENCHEL_ISA {

class ProjectiveTreeOracle {
 public:
  ProjectiveTreeOracle(const int64_t* layout, const int64_t* size)
      : columns_(layout[0] + 1),
        single_root_(layout[1] != 0),
        words_(size[0]),
        first_(single_root_ ? 1 : 0),
        tokens_(size[0] + 1) {
    for (auto* table :
         {&right_, &right_by_end_, &left_, &left_by_end_, &open_right_, &open_left_}) {
      StopCheck()(tokens_ * tokens_);
      table->resize(tokens_ * tokens_);
    }
  }

  static int64_t most_parts(const int64_t* layout) { return layout[0]; }

  int64_t argmax(const double* scores, int32_t* parts) {
    scores_ = scores;
    const StopCheck check;
    for (int64_t i = first_; i < tokens_; ++i) {
      right_[at(i, i)] = right_by_end_[at(i, i)] = left_[at(i, i)] = left_by_end_[at(i, i)] = 0;
    }
    for (int64_t width = 1; width < tokens_ - first_; ++width) {
      for (int64_t i = first_; i + width < tokens_; ++i) {
        check(3 * width);
        fill(i, i + width);
      }
    }
    parts_ = parts;
    used_ = 0;
    if (single_root_) return with_root();
    if (right_[at(0, words_)] == kForbidden) return kNone;
    complete_right(0, words_);
    return used_;
  }

 private:
  static constexpr double kForbidden = -std::numeric_limits<double>::infinity();

  int64_t at(int64_t i, int64_t j) const { return i * tokens_ + j; }
  int64_t part(int64_t head, int64_t word) const { return (word - 1) * columns_ + head; }
  double score(int64_t head, int64_t word) const {
    return word == 0 ? kForbidden : scores_[part(head, word)];
  }

  void fill(int64_t i, int64_t j) {
    double inner = kForbidden;
    const double* from_left = &right_[at(i, 0)];
    const double* from_right = &left_by_end_[at(j, 0)];
    for (int64_t k = i; k < j; ++k) inner = std::max(inner, from_left[k] + from_right[k + 1]);
    open_right_[at(i, j)] = inner + score(i, j);
    open_left_[at(j, i)] = inner + score(j, i);
    double right = kForbidden, left = kForbidden;
    const double* open = &open_right_[at(i, 0)];
    const double* rest = &right_by_end_[at(j, 0)];
    for (int64_t k = i + 1; k <= j; ++k) right = std::max(right, open[k] + rest[k]);
    open = &open_left_[at(j, 0)];
    rest = &left_[at(i, 0)];
    for (int64_t k = i; k < j; ++k) left = std::max(left, open[k] + rest[k]);
    right_[at(i, j)] = right_by_end_[at(j, i)] = right;
    left_[at(i, j)] = left_by_end_[at(j, i)] = left;
  }

  int64_t with_root() {
    double best = kForbidden;
    int64_t root = 0;
    for (int64_t r = 1; r <= words_; ++r) {
      const double whole = score(0, r) + (left_[at(1, r)] + right_[at(r, words_)]);
      if (whole > best) {
        best = whole;
        root = r;
      }
    }
    if (root == 0) return kNone;
    take(0, root);
    complete_left(1, root);
    complete_right(root, words_);
    return used_;
  }

  void take(int64_t head, int64_t word) {
    parts_[used_++] = static_cast<int32_t>(part(head, word));
  }

  // The way down looks again for the first pair that gives the value: no back-pointers to keep.
  void complete_right(int64_t i, int64_t j) {
    if (i == j) return;
    int64_t k = i + 1;
    while (open_right_[at(i, k)] + right_by_end_[at(j, k)] != right_[at(i, j)]) ++k;
    take(i, k);
    meet(i, k);
    complete_right(k, j);
  }

  void complete_left(int64_t i, int64_t j) {
    if (i == j) return;
    int64_t k = i;
    while (open_left_[at(j, k)] + left_[at(i, k)] != left_[at(i, j)]) ++k;
    take(j, k);
    meet(k, j);
    complete_left(i, k);
  }

  void meet(int64_t i, int64_t j) {
    double inner = kForbidden;
    int64_t best = i;
    for (int64_t k = i; k < j; ++k) {
      const double pair = right_[at(i, k)] + left_by_end_[at(j, k + 1)];
      if (pair > inner) {
        inner = pair;
        best = k;
      }
    }
    complete_right(i, best);
    complete_left(best + 1, j);
  }

  int64_t columns_;
  bool single_root_;
  int64_t words_, first_, tokens_;
  const double* scores_ = nullptr;
  int32_t* parts_ = nullptr;
  int64_t used_ = 0;
  // Complete spans with their head left (right_) or right (left_), by (begin, end) and (end,
  // begin); open_right_ by (begin, end), open_left_ by (end, begin): every loop reads along rows.
  std::vector<double> right_, right_by_end_, left_, left_by_end_, open_right_, open_left_;
};

template <>
struct OracleOf<FENCHEL_PROJECTIVE_TREE> {
  using type = ProjectiveTreeOracle;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
