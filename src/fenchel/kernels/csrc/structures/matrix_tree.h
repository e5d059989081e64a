// Sums over all (non-projective) dependency trees: log-partition, marginals, and the derivative of
// the marginals in one direction. Parts are those of tree.h.
//
// The matrix-tree theorem makes the sum a determinant of the Laplacian L, L_ii = sum of word i's
// weights, L_ih = -w_ih. Here no determinant is taken and nothing is ever subtracted: L is known by its
// off-diagonals w and its row sums (the root weights r), and these alone are eliminated, as for Markov
// chains by Grassmann, Taksar & Heyman. Eliminating word k with S_k = r_k + sum_h w_kh gives
//     w_ih += w_ik w_kh / S_k  (h != i),    r_i += w_ik r_k / S_k,    Z = product of the S_k,
// where the self arc w_ii that would appear is just what the Laplacian's diagonal loses. It reads as a
// random walk from word to head: w_ih is the rate of going from i to h through eliminated words.
//
// One root: the part of Z that is linear in r. Replacing r by eps r and keeping the lowest order, S_k
// loses its r_k, the updates stay, and Z = (product of the other S_k) r_last.
//
// Marginals: eliminate all words but i. Then the root entry e_i(h) of an eliminated word's row is the
// probability that the walk from h meets the root before i (with one root: its first order in eps), and
//     P(head of i is h) is proportional to w_ih e_i(h),   and to r_i for the root.
// Eliminating half of the words, then half of the rest, on both sides, gives all e_i in O(n^3), with
// columns over all words as the vectors of every loop. All marginals are positive and of full
// relative precision; rows sum to 1.
#pragma once

#include <algorithm>
#include <vector>

#include "oracle.h"
#include "tree_numbers.h"

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
  TreeElimination(const TreeScores& of, const TreeBlock& block)
      : of_(of),
        block_(block),
        n_(static_cast<int64_t>(block.words.size())),
        weight_(n_ * n_),
        root_(n_) {
    std::vector<double> shift(n_), root_shift(n_);
    double common = -kInfinity;
    for (int64_t i = 0; i < n_; ++i) {
      shift[i] = -kInfinity;
      double most = -kInfinity;
      for (const int32_t head : block_.outside) most = std::max(most, score(i, head));
      for (const int32_t word : block_.words) shift[i] = std::max(shift[i], score(i, word + 1));
      // Every tree has one root arc: its weight may have a scale of its own.
      if (!block_.single_root) shift[i] = std::max(shift[i], most);
      if (shift[i] == -kInfinity) shift[i] = 0;
      common = std::max(common, most - shift[i]);
    }
    if (!block_.single_root) common = 0;
    for (int64_t i = 0; i < n_; ++i) {
      for (int64_t j = 0; j < n_; ++j) {
        if (j != i) weight_[j * n_ + i] = weight(i, block_.words[j] + 1, shift[i]);
      }
      for (const int32_t head : block_.outside) {
        outside_.push_back(weight(i, head, shift[i] + common));
        root_[i] = root_[i] + outside_.back();
      }
      log_scale_ += shift[i];
    }
    if (block_.single_root) log_scale_ += common;
  }

  double log_sum() {
    double total = log_scale_;
    for (int64_t k = n_ - 1; k > 0; --k) {
      const T sum = pivot(weight_.data(), root_.data(), k, k);
      total += Number<T>::log(sum);
      const T* through = &weight_[k * n_];
      for (int64_t j = 0; j < k; ++j) {
        T* column = &weight_[j * n_];
        add_product(column, through, column[k] / sum, k);
        column[j] = T{};
      }
      add_product(root_.data(), through, root_[k] / sum, k);
    }
    return total + Number<T>::log(root_[0]);
  }

  void marginals(double* out) {
    out_ = out;
    int64_t room = 0;
    for (int64_t m = n_; m > 1; m -= m / 2) room += (m + 1) * n_;
    scratch_.resize(room);
    std::vector<int32_t> order(n_);
    for (int64_t i = 0; i < n_; ++i) order[i] = static_cast<int32_t>(i);
    escape(weight_.data(), root_.data(), order, scratch_.data());
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

  static void add_product(T* __restrict to, const T* __restrict from, T factor, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = to[i] + from[i] * factor;
  }

  // The sum of row `word` over the first `count` columns, and the root unless that is of lower order.
  T pivot(const T* columns, const T* root, int64_t word, int64_t count) const {
    T sum{};
    for (int64_t j = 0; j < count; ++j) sum = sum + columns[j * n_ + word];
    return block_.single_root ? sum : sum + root[word];
  }

  // Given the columns of the words in `order`, all others eliminated: go on until one word is left.
  void escape(const T* columns, const T* root, const std::vector<int32_t>& order, T* scratch) {
    const int64_t m = static_cast<int64_t>(order.size());
    if (m == 1) return finish(order[0], root);
    T* rest = scratch + (m + 1) * n_;
    T* own_root = scratch + m * n_;
    for (int side = 0; side < 2; ++side) {
      const int64_t begin = side == 0 ? 0 : m - m / 2, kept = side == 0 ? m - m / 2 : m / 2;
      std::vector<int32_t> turned(m);
      for (int64_t j = 0; j < m; ++j) {
        const int64_t from = (begin + j) % m;
        turned[j] = order[from];
        std::copy_n(columns + from * n_, n_, scratch + j * n_);
      }
      std::copy_n(root, n_, own_root);
      for (int64_t k = m - 1; k >= kept; --k) eliminate(scratch, own_root, turned, k, kept);
      turned.resize(kept);
      escape(scratch, own_root, turned, rest);
    }
  }

  void eliminate(T* columns, T* root, const std::vector<int32_t>& order, int64_t k, int64_t kept) {
    const int64_t word = order[k];
    const T sum = pivot(columns, root, word, k);
    const T* through = columns + k * n_;
    if (k > 1 || kept > 1) {  // the last column is not looked at any more
      for (int64_t j = 0; j < k; ++j) {
        T* column = columns + j * n_;
        const T share = column[word] / sum;
        add_product(column, through, share, n_);
        column[word] = share;
        column[order[j]] = T{};  // the self arc
      }
    }
    const T share = root[word] / sum;
    add_product(root, through, share, n_);
    root[word] = share;
  }

  void finish(int64_t i, const T* escape) {
    T sum = root_[i];
    for (int64_t j = 0; j < n_; ++j) {
      if (j != i) sum = sum + weight_[j * n_ + i] * escape[j];
    }
    double* row = out_ + block_.words[i] * of_.columns;
    for (int64_t j = 0; j < n_; ++j) {
      if (j != i) {
        row[block_.words[j] + 1] = Number<T>::result(weight_[j * n_ + i] * escape[j] / sum);
      }
    }
    const int64_t outside = static_cast<int64_t>(block_.outside.size());
    for (int64_t o = 0; o < outside; ++o) {
      row[block_.outside[o]] = Number<T>::result(outside_[i * outside + o] / sum);
    }
  }

  const TreeScores& of_;
  const TreeBlock& block_;
  int64_t n_;
  std::vector<T> weight_;   // (head, word)
  std::vector<T> root_;     // of a word: all its outside weights
  std::vector<T> outside_;  // (word, outside head)
  std::vector<T> scratch_;
  double log_scale_ = 0;
  double* out_ = nullptr;
};

// The trees of one instance as independent blocks. There is one, unless forbidden arcs leave the words
// of a single-rooted tree without a common cycle: then all roots are in the one set of words that no
// arc leads out of, and the other words form a forest that hangs on that set.
class TreeBlocks {
 public:
  // False if there is no tree.
  bool split(const TreeScores& of, int64_t words, bool single_root) {
    of_ = of;
    words_ = words;
    blocks_.clear();
    forbidden_ = false;
    for (int64_t i = 0; i < words; ++i) {
      for (int64_t head = 0; head <= words; ++head) {
        forbidden_ = forbidden_ || (head != i + 1 && !of.allowed(i, head));
      }
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

  // Whether plain numbers stay in range. With all arcs there, every number of the elimination is between
  // the smallest weight and (number of words) / its square; with some forbidden, a number can be as
  // small as the product of a weight of each word.
  bool plain(const TreeBlock& block) const {
    double widest = 0, all = 0;
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
      widest = std::max(widest, apart);
      all += apart + std::log(n + 1);
    }
    return forbidden_ ? all < 400 : widest < 150;
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
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
