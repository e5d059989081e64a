// Sums over all projective dependency trees, by the spans of oracles/projective_tree.h:
// log-partition, marginals, and the derivative of the marginals in one direction.
//
// Inside sums and their adjoints are sums of products of weights, so the marginals need no
// logarithm and no subtraction; tree_numbers.h has numbers of any range.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "../simd.h"
#include "matrix_tree.h"

namespace fenchel {
namespace FENCHEL_ISA {

template <class T>
inline T dot(const T* a, const T* b, int64_t n) {
  T sum{};
  for (int64_t i = 0; i < n; ++i) sum = sum + a[i] * b[i];
  return sum;
}

template <>
inline double dot<double>(const double* a, const double* b, int64_t n) {
  constexpr int lanes = kLanes<double>;
  Vec<double> sum = splat(0.0);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sum += load(a + i) * load(b + i);
  if (i < n) {
    const int left = static_cast<int>(n - i);
    sum += load_part(a + i, left, 0.0) * load_part(b + i, left, 0.0);
  }
  return sum_lanes<double>(sum);
}

template <class T>
class ProjectiveSums {
 public:
  ProjectiveSums(const TreeScores& of, int64_t words, bool single_root)
      : of_(of), single_root_(single_root), first_(single_root ? 1 : 0), tokens_(words + 1) {
    for (auto* table :
         {&weight_, &right_, &right_by_end_, &left_, &left_by_end_, &open_right_, &open_left_}) {
      StopCheck()(tokens_ * tokens_);
      table->resize(tokens_ * tokens_);
    }
    // Half-way between a word's best and worst head: the product of all stays near 1. Numbers of
    // any range are relative to the best one: however far below the others are, its digits count.
    for (int64_t word = 1; word < tokens_; ++word) {
      double low = kInfinity, high = -kInfinity;
      range(of, words, word - 1, &low, &high);
      const double shift = high < low ? 0 : (kWide ? high : low + (high - low) / 2);
      log_scale_ += shift;
      for (int64_t head = 0; head < tokens_; ++head) {
        if (!of.allowed(word - 1, head)) continue;
        weight_[at(word, head)] =
            Number<T>::exp(of.score(word - 1, head) - shift, of.slope(word - 1, head));
      }
    }
  }

  // Whether plain numbers stay in range: the weight of a tree is the product of one head's weight
  // of each word, and there are fewer than e^(2 words) trees.
  static bool plain(const TreeScores& of, int64_t words) {
    double all = 2.0 * static_cast<double>(words);
    for (int64_t word = 0; word < words; ++word) {
      double low = kInfinity, high = -kInfinity;
      range(of, words, word, &low, &high);
      if (low < high) all += (high - low) / 2;
    }
    return all < 690;
  }

  // -inf if there is no tree.
  double log_sum() {
    const T one = Number<T>::exp(0, 0);
    const StopCheck check;
    for (int64_t i = first_; i < tokens_; ++i) {
      right_[at(i, i)] = right_by_end_[at(i, i)] = left_[at(i, i)] = left_by_end_[at(i, i)] = one;
    }
    for (int64_t width = 1; width < tokens_ - first_; ++width) {
      for (int64_t i = first_; i + width < tokens_; ++i) {
        check(3 * width);
        inside(i, i + width);
      }
    }
    const int64_t last = tokens_ - 1;
    if (single_root_) {
      for (int64_t r = 1; r <= last; ++r) {
        total_ = total_ + weight_[at(r, 0)] * (left_[at(1, r)] * right_[at(r, last)]);
      }
    } else {
      total_ = right_[at(0, last)];
    }
    return is_zero(total_) ? -kInfinity : log_scale_ + Number<T>::log(total_);
  }

  // After log_sum, if there is a tree.
  void marginals(double* out) {
    for (auto* table : {&to_right_, &to_right_by_end_, &to_left_, &to_left_by_end_, &to_open_right_,
                        &to_open_left_}) {
      table->assign(tokens_ * tokens_, T{});
    }
    const int64_t last = tokens_ - 1;
    const T one = Number<T>::exp(0, 0);
    if (single_root_) {
      for (int64_t r = 1; r <= last; ++r) {
        const T root = weight_[at(r, 0)] / total_;
        const T whole = root * (left_[at(1, r)] * right_[at(r, last)]);
        out[(r - 1) * of_.columns] = Number<T>::result(whole);
        to_left_[at(1, r)] = root * right_[at(r, last)];
        to_right_[at(r, last)] = root * left_[at(1, r)];
      }
    } else {
      to_right_[at(0, last)] = one / total_;
    }
    const StopCheck check;
    for (int64_t width = tokens_ - first_ - 1; width > 0; --width) {
      for (int64_t i = first_; i + width < tokens_; ++i) {
        check(6 * width);
        outside(i, i + width, out);
      }
    }
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr bool kWide = !std::is_same_v<T, double> && !std::is_same_v<T, Dual>;

  static bool is_zero(double x) { return x == 0; }
  static bool is_zero(Dual x) { return x.value == 0; }
  template <class U>
  static bool is_zero(Scaled<U> x) {
    return is_zero(x.m);
  }

  static void range(const TreeScores& of, int64_t words, int64_t word, double* low, double* high) {
    for (int64_t head = 0; head <= words; ++head) {
      if (!of.allowed(word, head)) continue;
      *low = std::min(*low, of.score(word, head));
      *high = std::max(*high, of.score(word, head));
    }
  }

  static void add_product(T* __restrict to, const T* __restrict from, T factor, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = to[i] + from[i] * factor;
  }

  int64_t at(int64_t i, int64_t j) const { return i * tokens_ + j; }

  void inside(int64_t i, int64_t j) {
    const int64_t width = j - i;
    const T inner = dot(&right_[at(i, i)], &left_by_end_[at(j, i + 1)], width);
    open_right_[at(i, j)] = inner * weight_[at(j, i)];
    open_left_[at(j, i)] = inner * weight_[at(i, j)];  // none into token 0: its row is zero
    right_[at(i, j)] = right_by_end_[at(j, i)] =
        dot(&open_right_[at(i, i + 1)], &right_by_end_[at(j, i + 1)], width);
    left_[at(i, j)] = left_by_end_[at(j, i)] = dot(&open_left_[at(j, i)], &left_[at(i, i)], width);
  }

  void outside(int64_t i, int64_t j, double* out) {
    const int64_t width = j - i;
    const T right = to_right_[at(i, j)] + to_right_by_end_[at(j, i)];
    const T left = to_left_[at(i, j)] + to_left_by_end_[at(j, i)];
    add_product(&to_open_right_[at(i, i + 1)], &right_by_end_[at(j, i + 1)], right, width);
    add_product(&to_right_by_end_[at(j, i + 1)], &open_right_[at(i, i + 1)], right, width);
    add_product(&to_open_left_[at(j, i)], &left_[at(i, i)], left, width);
    add_product(&to_left_[at(i, i)], &open_left_[at(j, i)], left, width);
    const T open_right = to_open_right_[at(i, j)], open_left = to_open_left_[at(j, i)];
    out[(j - 1) * of_.columns + i] = Number<T>::result(open_right * open_right_[at(i, j)]);
    if (i > 0) {
      out[(i - 1) * of_.columns + j] = Number<T>::result(open_left * open_left_[at(j, i)]);
    }
    const T inner = open_right * weight_[at(j, i)] + open_left * weight_[at(i, j)];
    add_product(&to_right_[at(i, i)], &left_by_end_[at(j, i + 1)], inner, width);
    add_product(&to_left_by_end_[at(j, i + 1)], &right_[at(i, i)], inner, width);
  }

  const TreeScores& of_;
  bool single_root_;
  int64_t first_, tokens_;
  double log_scale_ = 0;
  T total_{};
  std::vector<T> weight_;  // (word, head) as tokens
  // As in oracles/projective_tree.h, and the derivative of the total with respect to each.
  std::vector<T> right_, right_by_end_, left_, left_by_end_, open_right_, open_left_;
  std::vector<T> to_right_, to_right_by_end_, to_left_, to_left_by_end_;
  std::vector<T> to_open_right_, to_open_left_;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
