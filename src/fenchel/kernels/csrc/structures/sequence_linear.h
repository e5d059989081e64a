// Forward-backward for transitions that all positions share, with probabilities instead of scores:
// one exp a tag and two products with a K x K matrix a position, instead of 2 K^2 exps.
//
// Messages are rescaled at every position. With a(t) the distribution over tags given the past,
// M = exp(transitions), s = a M and w = u / s (u: the marginals), the expected transitions are
// M * sum_t a(t) w(t+1)': one matrix product at the end.
//
// What underflows must not matter, and `forward` says when it might:
//  * All transitions finite, spread below 600: s(j) >= exp(-600) max(a), so a term that underflows
//    (below 1e-308) changes no s by more than 1e-47 of it.
//  * Some are -inf: a tag may be reached from an unlikely one only. So no a(j) that is not 0 by a
//    mask may be below 1e-200, with a spread of the finite ones below 100.
#pragma once

#include <cmath>
#include <vector>

#include "sequence_dp.h"

namespace fenchel {
namespace FENCHEL_ISA {

// out = sum over i of x[i] matrix[i, :], NV vectors of columns held in registers.
template <int NV>
inline void row_times_columns(const double* x, const double* matrix, int64_t rows, int64_t stride,
                              double* out) {
  constexpr int lanes = kLanes<double>;
  Vec<double> even[NV], odd[NV];
  for (int v = 0; v < NV; ++v) even[v] = odd[v] = splat(0.0);
  int64_t i = 0;
  for (; i + 1 < rows; i += 2) {
    const double* row = matrix + i * stride;
    for (int v = 0; v < NV; ++v) even[v] += load(row + v * lanes) * x[i];
    for (int v = 0; v < NV; ++v) odd[v] += load(row + stride + v * lanes) * x[i + 1];
  }
  if (i < rows) {
    for (int v = 0; v < NV; ++v) even[v] += load(matrix + i * stride + v * lanes) * x[i];
  }
  for (int v = 0; v < NV; ++v) store(out + v * lanes, even[v] + odd[v]);
}

inline void row_times(const double* x, const double* matrix, int64_t rows, int64_t stride,
                      double* out) {
  constexpr int lanes = kLanes<double>;
  int64_t j = 0;
  for (; j + 4 * lanes <= stride; j += 4 * lanes) {
    row_times_columns<4>(x, matrix + j, rows, stride, out + j);
  }
  switch ((stride - j) / lanes) {
    case 3:
      return row_times_columns<3>(x, matrix + j, rows, stride, out + j);
    case 2:
      return row_times_columns<2>(x, matrix + j, rows, stride, out + j);
    case 1:
      return row_times_columns<1>(x, matrix + j, rows, stride, out + j);
    default:
      return;
  }
}

// sums += left' right for `count` rows each, in tiles of 4 rows and one or two vectors.
inline void add_outer(const double* left, const double* right, int64_t count, int64_t stride,
                      double* sums) {
  const StopCheck check;
  constexpr int lanes = kLanes<double>, kRows = lanes < 4 ? lanes : 4;
  constexpr int64_t kBlock = 32;  // positions whose rows stay in the cache
  for (int64_t t0 = 0; t0 < count; t0 += kBlock) {
    const int64_t t1 = std::min(count, t0 + kBlock);
    for (int64_t i = 0; i < stride; i += kRows) {
      check(kRows * stride);
      for (int64_t j = 0; j < stride; j += lanes) {
        Vec<double> tile[kRows];
        for (int r = 0; r < kRows; ++r) tile[r] = load(sums + (i + r) * stride + j);
        for (int64_t t = t0; t < t1; ++t) {
          const Vec<double> row = load(right + t * stride + j);
          for (int r = 0; r < kRows; ++r) tile[r] += row * left[t * stride + i + r];
        }
        for (int r = 0; r < kRows; ++r) store(sums + (i + r) * stride + j, tile[r]);
      }
    }
  }
}

class LinearSequence {
  static constexpr int kWidth = kLanes<double>;

 public:
  LinearSequence(const SequenceLayout& at, const double* scores)
      : at_(at), k_(at.tags), padded_(whole_vectors(k_)), scores_(scores) {}

  // The log-partition in `value`; false if probabilities cannot be trusted here.
  bool forward(double& value) {
    if (!prepare()) return false;
    a_.resize(at_.length * padded_);
    s_.resize(at_.length * padded_);
    std::vector<double> x(padded_);
    value = 0;
    const StopCheck check;
    for (int64_t t = 0; t < at_.length; ++t) {
      check(k_ * padded_);
      double* a = a_.data() + t * padded_;
      double* s = s_.data() + t * padded_;
      position_scores(at_, scores_, t, -kInf<double>, padded_, x.data());
      if (t == 0) {
        for (int64_t j = 0; j < padded_; ++j) s[j] = j < k_ ? 1.0 : 0.0;
      } else {
        row_times(a - padded_, matrix_.data(), k_, padded_, s);
        value += shift_;
      }
      Vec<double> best = splat(-kInf<double>), sum = splat(0.0);
      for (int64_t j = 0; j < padded_; j += kWidth) {
        const Vec<double> alive = load(s + j) > 0.0 ? load(x.data() + j) : splat(-kInf<double>);
        store(x.data() + j, alive);
        best = larger<double>(alive, best);
      }
      const double top = max_lanes<double>(best);
      if (top == -kInf<double>) {
        value = top;
        return dense_ || t == 0;
      }
      for (int64_t j = 0; j < padded_; j += kWidth) {
        const Vec<double> here = load(s + j) * vector_exp(load(x.data() + j) - top);
        store(a + j, here);
        sum += here;
      }
      const double total = sum_lanes<double>(sum), scale = 1.0 / total;
      value += top + std::log(total);
      Mask<double> lost = {};
      for (int64_t j = 0; j < padded_; j += kWidth) {
        const Vec<double> here = load(a + j) * scale;
        store(a + j, here);
        lost |= (here < 1e-200) & (load(x.data() + j) > -kInf<double>);
      }
      if (!dense_ && any<double>(lost)) return false;
    }
    return true;
  }

  // After forward(): the marginals. `means` holds zeros.
  void gradient(double* means) {
    std::vector<double> u(a_.end() - padded_, a_.end()), y(padded_);
    std::vector<double> w(at_.length * padded_);
    const StopCheck check;
    for (int64_t t = at_.length - 1;; --t) {
      check(k_ * padded_);
      position_means(at_, u.data(), t, means);
      if (t == 0) break;
      divide(u.data(), t, w.data() + t * padded_);
      row_times(w.data() + t * padded_, turned_.data(), k_, padded_, y.data());
      const double* a = a_.data() + (t - 1) * padded_;
      for (int64_t j = 0; j < padded_; j += kWidth) store(u.data() + j, load(a + j) * load(&y[j]));
    }
    std::vector<double> sums(room());
    add_outer(a_.data(), w.data() + padded_, at_.length - 1, padded_, sums.data());
    for (int64_t i = 0; i < k_; ++i) {
      for (int64_t j = 0; j < k_; ++j) {
        means[at_.transitions(0) + i * k_ + j] = matrix_[i * padded_ + j] * sums[i * padded_ + j];
      }
    }
  }

  // After forward(): the Hessian times `direction`. `out` holds zeros.
  void product(const double* direction, double* out) {
    const double* dm = direction + at_.transitions(0);
    std::vector<double> slope(room()), slope_turned(room());  // M * direction, and its transpose
    for (int64_t i = 0; i < k_; ++i) {
      for (int64_t j = 0; j < k_; ++j) {
        slope[i * padded_ + j] = matrix_[i * padded_ + j] * dm[i * k_ + j];
        slope_turned[j * padded_ + i] = slope[i * padded_ + j];
      }
    }
    const int64_t all = at_.length * padded_;
    std::vector<double> dv(all), lift(all), adv(all), w(all), x(all);
    std::vector<double> y1(padded_), y2(padded_), y3(padded_);
    const StopCheck check;
    for (int64_t t = 0; t < at_.length;
         ++t) {  // how log messages move: dv, and lift before emission
      check(2 * k_ * padded_);
      double* here = dv.data() + t * padded_;
      double* up = lift.data() + t * padded_;
      const double* a = a_.data() + t * padded_;
      const double* s = s_.data() + t * padded_;
      position_scores(at_, direction, t, 0.0, padded_, here);
      if (t > 0) {
        row_times(adv.data() + (t - 1) * padded_, matrix_.data(), k_, padded_, y1.data());
        row_times(a - padded_, slope.data(), k_, padded_, y2.data());
        for (int64_t j = 0; j < k_; ++j) up[j] = s[j] > 0 ? (y1[j] + y2[j]) / s[j] : 0.0;
        for (int64_t j = 0; j < k_; ++j) here[j] += up[j];
      }
      double mean = 0;
      for (int64_t j = 0; j < k_; ++j) mean += a[j] * here[j];
      for (int64_t j = 0; j < k_; ++j) here[j] = a[j] > 0 ? here[j] - mean : 0.0;
      for (int64_t j = 0; j < k_; ++j) adv[t * padded_ + j] = a[j] * here[j];
    }
    std::vector<double> u(a_.end() - padded_, a_.end()), du(adv.end() - padded_, adv.end());
    for (int64_t t = at_.length - 1;; --t) {
      check(3 * k_ * padded_);
      position_means(at_, du.data(), t, out);
      if (t == 0) break;
      double* wt = w.data() + t * padded_;
      double* xt = x.data() + t * padded_;
      divide(u.data(), t, wt);
      divide(du.data(), t, xt);
      for (int64_t j = 0; j < k_; ++j) xt[j] -= wt[j] * lift[t * padded_ + j];
      row_times(wt, turned_.data(), k_, padded_, y1.data());
      row_times(xt, turned_.data(), k_, padded_, y2.data());
      row_times(wt, slope_turned.data(), k_, padded_, y3.data());
      const double* a = a_.data() + (t - 1) * padded_;
      const double* moved = dv.data() + (t - 1) * padded_;
      for (int64_t i = 0; i < k_; ++i) {
        u[i] = a[i] * y1[i];
        du[i] = a[i] * (y2[i] + moved[i] * y1[i] + y3[i]);
      }
    }
    std::vector<double> plain(room()), sums(room());
    const int64_t steps = at_.length - 1;
    add_outer(a_.data(), w.data() + padded_, steps, padded_, plain.data());
    add_outer(a_.data(), x.data() + padded_, steps, padded_, sums.data());
    add_outer(adv.data(), w.data() + padded_, steps, padded_, sums.data());
    for (int64_t i = 0; i < k_; ++i) {
      for (int64_t j = 0; j < k_; ++j) {
        const int64_t at = i * padded_ + j;
        out[at_.transitions(0) + i * k_ + j] = matrix_[at] * sums[at] + slope[at] * plain[at];
      }
    }
  }

 private:
  int64_t room() const { return padded_ * padded_; }

  // M = exp(transitions - their maximum) and its transpose; false if their spread is too wide.
  bool prepare() {
    const double* from = scores_ + at_.transitions(0);
    double low = kInf<double>, high = -kInf<double>;
    dense_ = true;
    for (int64_t i = 0; i < k_ * k_; ++i) {
      if (from[i] == -kInf<double>) {
        dense_ = false;
        continue;
      }
      low = std::min(low, from[i]);
      high = std::max(high, from[i]);
    }
    if (!(high > -kInf<double>) || high - low > (dense_ ? 600.0 : 100.0)) return false;
    shift_ = high;
    matrix_.assign(room(), 0.0);
    turned_.assign(room(), 0.0);
    for (int64_t i = 0; i < k_; ++i) {
      double* row = matrix_.data() + i * padded_;
      int64_t j = 0;
      for (; j + kWidth <= k_; j += kWidth) {
        store(row + j, vector_exp(load(from + i * k_ + j) - high));
      }
      if (j < k_) {
        const int rest = static_cast<int>(k_ - j);
        store(row + j, vector_exp(load_part(from + i * k_ + j, rest, -kInf<double>) - high));
      }
      for (j = 0; j < k_; ++j) turned_[j * padded_ + i] = row[j];
    }
    return true;
  }

  // out = u / s of position t, 0 where the tag cannot be reached.
  void divide(const double* u, int64_t t, double* out) const {
    const double* s = s_.data() + t * padded_;
    for (int64_t j = 0; j < padded_; j += kWidth) {
      const Vec<double> below = load(s + j);
      const Mask<double> alive = below > 0.0;
      store(out + j, alive ? load(u + j) / (alive ? below : splat(1.0)) : splat(0.0));
    }
  }

  SequenceLayout at_;
  int64_t k_, padded_;
  const double* scores_;
  bool dense_ = true;
  double shift_ = 0;
  std::vector<double> matrix_, turned_, a_, s_;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
