// Sums over all (non-projective) dependency trees: log-partition, marginals, and the derivative of
// the marginals in one direction. Parts are those of oracles/tree.h.
//
// The matrix-tree theorem makes the sum a determinant of the Laplacian L, L_ii = sum of word i's
// weights, L_ih = -w_ih. Here no determinant is taken and nothing is ever subtracted: L is known by
// its off-diagonals w and its row sums (the root weights r), and these alone are eliminated, as for
// Markov chains by Grassmann, Taksar & Heyman. Eliminating word k with S_k = r_k + sum_h w_kh gives
//     w_ih += w_ik w_kh / S_k  (h != i),    r_i += w_ik r_k / S_k,    Z = product of the S_k,
// where the self arc w_ii that would appear is just what the Laplacian's diagonal loses. It reads
// as a random walk from word to head: w_ih is the rate of going from i to h through eliminated
// words.
//
// One root: the part of Z that is linear in r. Replacing r by eps r and keeping the lowest order,
// S_k loses its r_k, the updates stay, and Z = (product of the other S_k) r_last.
//
// Marginals: eliminate all words but i. Then the root entry e_i(h) of an eliminated word's row is
// the probability that the walk from h meets the root before i (with one root: its first order in
// eps), and
//     P(head of i is h) is proportional to w_ih e_i(h),   and to r_i for the root.
// Eliminating half of the words, then half of the rest, on both sides, gives all e_i in O(n^3),
// with columns over all words as the vectors of every loop. All marginals are positive and of full
// relative precision; rows sum to 1.
#pragma once

#include <algorithm>
#include <vector>

#include "oracle.h"
#include "tree_numbers.h"
#include "tree_rows.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Scores of one instance, and a direction (or none) to differentiate in.
struct TreeScores {
  const double* scores;
  const double* direction;
  int64_t columns;

  double score(int64_t word, int64_t head) const { return scores[word * columns + head]; }
  double slope(int64_t word, int64_t head) const {
    return direction == nullptr ? 0.0 : direction[word * columns + head];
  }
  bool allowed(int64_t word, int64_t head) const {
    return head != word + 1 && score(word, head) > -std::numeric_limits<double>::infinity();
  }
};

// Words whose heads are among themselves and the `outside` heads, which all count as the root.
struct TreeBlock {
  std::vector<int32_t> words;
  std::vector<int32_t> outside;
  bool single_root;
};

template <class T>
class TreeElimination {
 public:
  // `high`: the best score of each word among the other words, if nothing is forbidden; else null.
  TreeElimination(const TreeScores& of, const TreeBlock& block, const double* high)
      : of_(of),
        block_(block),
        n_(static_cast<int64_t>(block.words.size())),
        room_(column_room<T>(n_)),
        weights_(n_ * room_ + 8),
        weight_(aligned(weights_)),
        root_(room_),
        shares_(n_) {
    outside_.reserve(n_ * block_.outside.size());
    std::vector<double> shift(n_);
    double common = -kInfinity;
    for (int64_t i = 0; i < n_; ++i) {
      shift[i] = high == nullptr ? -kInfinity : high[i];
      double most = -kInfinity;
      for (const int32_t head : block_.outside) most = std::max(most, score(i, head));
      if (high == nullptr) {
        for (const int32_t word : block_.words) shift[i] = std::max(shift[i], score(i, word + 1));
      }
      // Every tree has one root arc: its weight may have a scale of its own.
      if (!block_.single_root) shift[i] = std::max(shift[i], most);
      if (shift[i] == -kInfinity) shift[i] = 0;
      common = std::max(common, most - shift[i]);
      log_scale_ += shift[i];
    }
    if (!block_.single_root) common = 0;
    log_scale_ += common;
    for (int64_t i = 0; i < n_; ++i) {
      if (!load_row(i, shift[i], high != nullptr)) {
        for (int64_t j = 0; j < n_; ++j) {
          if (j != i) weight_[j * room_ + i] = weight(i, block_.words[j] + 1, shift[i]);
        }
      }
      for (const int32_t head : block_.outside) {
        outside_.push_back(weight(i, head, shift[i] + common));
        root_[i] = root_[i] + outside_.back();
      }
    }
  }

  double log_sum() {
    double total = log_scale_;
    for (int64_t k = n_ - 1; k > 0; --k) {
      check_(k * k);
      const T sum = pivot(weight_, root_.data(), k, k);
      total += Number<T>::log(sum);
      const T inverse = Number<T>::exp(0, 0) / sum;
      const T* through = weight_ + k * room_;
      for (int64_t j = 0; j < k; ++j) shares_[j] = shares_[j] * inverse;
      const int64_t length = column_room<T>(k);
      add_outer(weight_, k, room_, through, shares_.data(), length);
      for (int64_t j = 0; j < k; ++j) weight_[j * room_ + j] = T{};
      const T share = root_[k] * inverse;
      add_outer(root_.data(), 1, room_, through, &share, length);
    }
    return total + Number<T>::log(root_[0]);
  }

  // Returns the log-partition, which the first way down passes.
  double marginals(double* out) {
    out_ = out;
    total_ = log_scale_;
    int64_t room = 8;
    for (int64_t m = n_; m > 1; m -= m / 2) room += (m + 1) * room_;
    scratch_.resize(room);
    std::vector<int32_t> order(n_);
    for (int64_t i = 0; i < n_; ++i) order[i] = static_cast<int32_t>(i);
    turned_.resize(2 * n_ + 64);
    escape(weight_, root_.data(), order.data(), n_, aligned(scratch_), turned_.data(), true);
    return total_;
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  double score(int64_t i, int64_t head) const {
    const int64_t word = block_.words[i];
    return of_.allowed(word, head) ? of_.score(word, head) : -kInfinity;
  }

  T weight(int64_t i, int64_t head, double shift) const {
    const int64_t word = block_.words[i];
    if (!of_.allowed(word, head)) return T{};
    return Number<T>::exp(of_.score(word, head) - shift, of_.slope(word, head));
  }

  // The weights of all words as heads of word i at once, if they are plain and all there.
  bool load_row(int64_t i, double shift, bool all) {
    if constexpr (std::is_same<T, double>::value) {
      if (!all) return false;
      exp_row(of_.scores + i * of_.columns + 1, shift, shares_.data(), n_);
      for (int64_t j = 0; j < n_; ++j) weight_[j * room_ + i] = shares_[j];
      weight_[i * room_ + i] = 0;
      return true;
    }
    return false;
  }

  // Row `word` over the first `count` columns in shares_, and its sum, with the root unless that is
  // of lower order.
  T pivot(const T* columns, const T* root, int64_t word, int64_t count) {
    for (int64_t j = 0; j < count; ++j) shares_[j] = columns[j * room_ + word];
    const T sum = entries_sum(shares_.data(), count);
    return block_.single_root ? sum : sum + root[word];
  }

  // Given the columns of the m words in `order`, all others eliminated: go on until one is left.
  void escape(const T* columns, const T* root, const int32_t* order, int64_t m, T* scratch,
              int32_t* turned, bool first) {
    if (m == 1) {
      if (first) total_ += Number<T>::log(root[order[0]]);
      return finish(order[0], root);
    }
    T* own_root = scratch + m * room_;
    for (int side = 0; side < 2; ++side) {
      const int64_t begin = side == 0 ? 0 : m - m / 2, kept = side == 0 ? m - m / 2 : m / 2;
      std::copy_n(order + begin, m - begin, turned);
      std::copy_n(order, begin, turned + (m - begin));
      std::copy_n(columns + begin * room_, (m - begin) * room_, scratch);
      std::copy_n(columns, begin * room_, scratch + (m - begin) * room_);
      std::copy_n(root, room_, own_root);
      for (int64_t k = m - 1; k >= kept; --k) {
        check_(k * room_);
        const T sum = eliminate(scratch, own_root, turned, k, kept);
        if (first && side == 0) total_ += Number<T>::log(sum);
      }
      escape(scratch, own_root, turned, kept, own_root + room_, turned + m, first && side == 0);
    }
  }

  T eliminate(T* columns, T* root, const int32_t* order, int64_t k, int64_t kept) {
    const int64_t word = order[k];
    const T sum = pivot(columns, root, word, k);
    const T inverse = Number<T>::exp(0, 0) / sum;
    const T* through = columns + k * room_;
    if (k > 1 || kept > 1) {  // the last column is not looked at any more
      for (int64_t j = 0; j < k; ++j) shares_[j] = shares_[j] * inverse;
      add_outer(columns, k, room_, through, shares_.data(), room_);
      for (int64_t j = 0; j < k; ++j) {
        columns[j * room_ + word] = shares_[j];
        columns[j * room_ + order[j]] = T{};  // the self arc
      }
    }
    const T share = root[word] * inverse;
    add_outer(root, 1, room_, through, &share, room_);
    root[word] = share;
    return sum;
  }

  void finish(int64_t i, const T* escape) {
    T sum = root_[i];
    for (int64_t j = 0; j < n_; ++j) {
      if (j == i) continue;
      shares_[j] = weight_[j * room_ + i] * escape[j];
      sum = sum + shares_[j];
    }
    const T inverse = Number<T>::exp(0, 0) / sum;
    double* row = out_ + block_.words[i] * of_.columns;
    for (int64_t j = 0; j < n_; ++j) {
      if (j != i) row[block_.words[j] + 1] = Number<T>::result(shares_[j] * inverse);
    }
    const int64_t outside = static_cast<int64_t>(block_.outside.size());
    for (int64_t o = 0; o < outside; ++o) {
      row[block_.outside[o]] = Number<T>::result(outside_[i * outside + o] * inverse);
    }
  }

  const StopCheck check_;
  const TreeScores& of_;
  const TreeBlock& block_;
  int64_t n_, room_;  // words, and the room that a column over them has
  std::vector<T> weights_;
  T* weight_;               // (head, word)
  std::vector<T> root_;     // of a word: all its outside weights
  std::vector<T> outside_;  // (word, outside head)
  std::vector<T> shares_, scratch_;
  std::vector<int32_t> turned_;
  double log_scale_ = 0, total_ = 0;
  double* out_ = nullptr;
};

// The trees of one instance as independent blocks. There is one, unless forbidden arcs leave the
// words of a single-rooted tree without a common cycle: then all roots are in the one set of words
// that no arc leads out of, and the other words form a forest that hangs on that set.
class TreeBlocks {
 public:
  // False if there is no tree.
  bool split(const TreeScores& of, int64_t words, bool single_root) {
    of_ = of;
    words_ = words;
    blocks_.clear();
    forbidden_ = false;
    low_.assign(words, kHuge);
    high_.assign(words, -kHuge);
    for (int64_t i = 0; i < words; ++i) {
      const double* row = of.scores + i * of.columns;
      widen(row + 1, i, &low_[i], &high_[i]);
      widen(row + i + 2, words - i - 1, &low_[i], &high_[i]);
      forbidden_ = forbidden_ || low_[i] == -kHuge || row[0] == -kHuge;
    }
    TreeBlock all{{}, {0}, single_root};
    for (int64_t i = 0; i < words; ++i) all.words.push_back(static_cast<int32_t>(i));
    if (!forbidden_) {
      blocks_.push_back(all);
      return true;
    }
    if (!single_root) {
      if (static_cast<int64_t>(below({0}).size()) != words) return false;
      blocks_.push_back(all);
      return true;
    }
    // A word from which all others hang is in that set if there is one; the last new start is it.
    std::vector<int32_t> starts;
    std::vector<char> seen(words, 0);
    for (int32_t i = 0; i < words; ++i) {
      if (seen[i]) continue;
      starts.push_back(i);
      for (const int32_t word : below({i + 1})) seen[word] = 1;
      seen[i] = 1;
    }
    const int32_t mother = starts.back();
    std::fill(seen.begin(), seen.end(), 0);
    for (const int32_t word : below({mother + 1})) seen[word] = 1;
    seen[mother] = 1;
    if (std::count(seen.begin(), seen.end(), 1) != words) return false;
    TreeBlock closed{{}, {0}, true}, hanging{{}, {}, false};
    const std::vector<char> inside = above(mother);
    bool rooted = false;
    for (int32_t i = 0; i < words; ++i) {
      if (inside[i]) {
        closed.words.push_back(i);
        hanging.outside.push_back(i + 1);
        rooted = rooted || of.allowed(i, 0);
      } else {
        hanging.words.push_back(i);
      }
    }
    if (!rooted) return false;
    blocks_.push_back(closed);
    if (!hanging.words.empty()) blocks_.push_back(hanging);
    return true;
  }

  const std::vector<TreeBlock>& blocks() const { return blocks_; }

  // The best score of each word among the other words; null if something is forbidden.
  const double* high() const { return forbidden_ ? nullptr : high_.data(); }

  // Whether plain numbers stay in range. With all arcs there, every number of the elimination is
  // between the smallest weight and (number of words) / its square; with some forbidden, a number
  // can be as small as the product of a weight of each word.
  bool plain(const TreeBlock& block) const {
    double widest = 0, all = 0;
    if (!forbidden_) {
      for (int64_t i = 0; i < words_; ++i) {
        const double root = of_.score(i, 0);
        const double low = block.single_root ? low_[i] : std::min(low_[i], root);
        const double high = block.single_root ? high_[i] : std::max(high_[i], root);
        widest = std::max(widest, high - low);
      }
      return widest < 150;
    }
    const double n = static_cast<double>(block.words.size());
    for (const int32_t word : block.words) {
      double low = kHuge, high = -kHuge;
      const auto see = [&](int64_t head) {
        if (!of_.allowed(word, head)) return;
        low = std::min(low, of_.score(word, head));
        high = std::max(high, of_.score(word, head));
      };
      for (const int32_t other : block.words) see(other + 1);
      if (!block.single_root) {
        for (const int32_t head : block.outside) see(head);
      }
      const double apart = high < low ? 0 : high - low;
      all += apart + std::log(n + 1);
    }
    return all < 400;
  }

 private:
  static constexpr double kHuge = std::numeric_limits<double>::infinity();

  // Words that can hang on `heads`, directly or not.
  std::vector<int32_t> below(std::vector<int32_t> heads) const {
    std::vector<char> seen(words_, 0);
    std::vector<int32_t> found;
    while (!heads.empty()) {
      const int32_t head = heads.back();
      heads.pop_back();
      for (int32_t i = 0; i < words_; ++i) {
        if (seen[i] || !of_.allowed(i, head)) continue;
        seen[i] = 1;
        found.push_back(i);
        heads.push_back(i + 1);
      }
    }
    return found;
  }

  // The word and all that it can hang on, directly or not.
  std::vector<char> above(int32_t word) const {
    std::vector<char> seen(words_, 0);
    std::vector<int32_t> open{word};
    seen[word] = 1;
    while (!open.empty()) {
      const int32_t from = open.back();
      open.pop_back();
      for (int32_t i = 0; i < words_; ++i) {
        if (seen[i] || !of_.allowed(from, i + 1)) continue;
        seen[i] = 1;
        open.push_back(i);
      }
    }
    return seen;
  }

  TreeScores of_{};
  int64_t words_ = 0;
  bool forbidden_ = false;
  std::vector<TreeBlock> blocks_;
  std::vector<double> low_, high_;  // of a word, among the other words
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
