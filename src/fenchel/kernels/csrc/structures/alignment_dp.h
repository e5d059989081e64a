// Smoothed dynamic time warping: value, expected alignment, and Hessian products.
//
// The maximum over the three cells before a cell is smoothed by an entropy or by a squared norm;
// its gradient is the share each of the three has. Shares multiplied along paths, from the last
// corner back, give the expected alignment; differentiating both sweeps in a direction gives the
// Hessian product (Mensch & Blondel 2018). Cells of an anti-diagonal do not depend on each other
// and fill the lanes of a vector.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "exp_log.h"
#include "oracle.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Maximum smoothed by the entropy: gamma log sum exp(x / gamma).
struct EntropyMax {
  double gamma, inverse;
  explicit EntropyMax(double g) : gamma(g), inverse(1.0 / g) {}

  Vec<double> operator()(const Vec<double>* x, Vec<double>* shares) const {
    const Vec<double> high = larger<double>(x[0], x[1]), low = x[0] < x[1] ? x[0] : x[1];
    const Vec<double> top = larger<double>(high, x[2]);
    const Vec<double> under = high < x[2] ? high : x[2];
    const Vec<double> middle = larger<double>(low, under), least = low < under ? low : under;
    const Mask<double> some = top > -kInf<double>;
    const Vec<double> base = some ? top : splat(0.0);
    // Two exponentials serve three entries: that of the largest is 1.
    const Vec<double> second = vector_exp((middle - base) * inverse);
    const Vec<double> third = vector_exp((least - base) * inverse);
    const Vec<double> total = 1.0 + (second + third), scale = 1.0 / total;
    const Vec<double> share2 = second * scale, share3 = third * scale;
    for (int k = 0; k < 3; ++k) {
      const Vec<double> share = x[k] == top ? scale : (x[k] == middle ? share2 : share3);
      shares[k] = some ? share : splat(0.0);
    }
    return top + gamma * log_above_one(total);
  }

  // How the shares move when x moves; `mean` is how the value moves.
  Vec<double> tangent(Vec<double> share, Vec<double> dx, Vec<double> mean, Vec<double>) const {
    return share * (dx - mean) * inverse;
  }
};

// Maximum smoothed by the squared norm: max over shares p of <p, x> - gamma/2 |p|^2.
struct SquaredMax {
  double gamma, inverse;
  explicit SquaredMax(double g) : gamma(g), inverse(1.0 / g) {}

  Vec<double> operator()(const Vec<double>* x, Vec<double>* shares) const {
    const Vec<double> top = larger<double>(larger<double>(x[0], x[1]), x[2]);
    const Mask<double> some = top > -kInf<double>;
    const Vec<double> base = some ? top : splat(0.0);
    Vec<double> y[3];
    // What is 1 below the largest has no share, so that -2 stands for all that is lower.
    for (int k = 0; k < 3; ++k) y[k] = larger<double>((x[k] - base) * inverse, splat(-2.0));
    const Vec<double> high = larger<double>(y[0], y[1]), low = y[0] < y[1] ? y[0] : y[1];
    const Vec<double> under = high < y[2] ? high : y[2];
    const Vec<double> middle = larger<double>(low, under), least = low < under ? low : under;
    // The largest y is 0: thresholds if one, two or three entries have a share.
    const Vec<double> two = (middle - 1.0) * 0.5, three = (middle + least - 1.0) * (1.0 / 3.0);
    Vec<double> tau = middle > -1.0 ? two : splat(-1.0);
    tau = least > two ? three : tau;
    Vec<double> value = splat(0.0);
    for (int k = 0; k < 3; ++k) {
      const Vec<double> share = larger<double>(y[k] - tau, splat(0.0));
      value += share * (y[k] - 0.5 * share);
      shares[k] = some ? share : splat(0.0);
    }
    return top + gamma * value;
  }

  // `plain` is the mean of dx over the entries with a share.
  Vec<double> tangent(Vec<double> share, Vec<double> dx, Vec<double>, Vec<double> plain) const {
    return share > 0.0 ? (dx - plain) * inverse : splat(0.0);
  }
};

// One instance of m x n cells in rows of `stride`. Cell (i, j) is on anti-diagonal d = i + j; each
// of those is stored from its first row on, padded to whole vectors.
template <class Smoothed>
class AlignmentSweep {
 public:
  void prepare(int64_t stride, const int64_t* size, double gamma, bool second_order) {
    stride_ = stride, m_ = size[0], n_ = size[1], smoothed_ = Smoothed(gamma);
    start_.resize(diagonals());
    int64_t room = 0;
    for (int64_t d = 0; d < diagonals(); ++d) {
      start_[d] = room - first(d);
      room += (last(d) - first(d) + kWidth) / kWidth * kWidth;
    }
    const StopCheck check;
    cells_.resize(room);
    for (auto& list : shares_) {
      check(room);
      list.resize(room);
    }
    // Room for a cell before the first, and for a vector behind the last.
    for (auto& line : lines_) line.resize(m_ + 1 + 2 * kWidth);
    if (!second_order) return;
    directions_.resize(room);
    for (auto& list : tangents_) {
      check(room);
      list.resize(room);
    }
    for (auto& line : tangent_lines_) line.resize(m_ + 1 + 2 * kWidth);
  }

  // The smoothed maximum over all paths; keeps the shares. -inf if no path is finite.
  double forward(const double* scores) {
    to_diagonals(scores, cells_);
    return sweep<false>();
  }

  // The same, and how everything moves when the scores move along `direction`.
  double forward(const double* scores, const double* direction) {
    to_diagonals(scores, cells_);
    to_diagonals(direction, directions_);
    return sweep<true>();
  }

  // About what it holds.
  size_t bytes() const {
    return (4 * cells_.capacity() + 4 * directions_.capacity()) * sizeof(double);
  }

  // The expected alignment into `out` (rows of `stride`), after forward().
  void gradient(double* out) {
    back_sweep<false>();
    cells_[0] = 1.0;  // every path has the first cell; the sum of its shares is only nearly 1
    from_diagonals(cells_, out);
  }

  // The derivative of the expected alignment along the direction of forward().
  void product(double* out) {
    back_sweep<true>();
    directions_[0] = 0.0;
    from_diagonals(directions_, out);
  }

 private:
  static constexpr int64_t kWidth = kLanes<double>;
  using Line = std::vector<double>;

  int64_t diagonals() const { return m_ + n_ - 1; }
  int64_t first(int64_t d) const { return std::max<int64_t>(0, d - n_ + 1); }  // rows
  int64_t last(int64_t d) const { return std::min(d, m_ - 1); }

  void to_diagonals(const double* from, std::vector<double>& to) const {
    const StopCheck check;
    for (int64_t i = 0; i < m_; ++i) {
      check(n_);
      for (int64_t j = 0; j < n_; ++j) {
        to[start_[i + j] + i] = from[i * stride_ + j];
      }
    }
  }

  void from_diagonals(const std::vector<double>& from, double* to) const {
    const StopCheck check;
    for (int64_t i = 0; i < m_; ++i) {
      check(n_);
      for (int64_t j = 0; j < n_; ++j) {
        to[i * stride_ + j] = from[start_[i + j] + i];
      }
    }
  }

  // Which lanes are cells, when `left` cells are left.
  static Mask<double> lanes_below(int64_t left) {
    Mask<double> lane;
    for (int64_t k = 0; k < kWidth; ++k) lane[k] = k;
    return lane < left;
  }

  template <bool kSecond>
  double sweep() {
    // lines_[d % 3] holds the values of anti-diagonal d, row i at i + 1. What lies outside stays
    // -inf: rows above the last cell have not been reached by any earlier line, and of the rows
    // below the first only the one before the matrix is read.
    for (auto& line : lines_) std::fill(line.begin(), line.end(), -kInf<double>);
    lines_[0][1] = cells_[0];
    for (auto& list : shares_) std::fill_n(list.begin(), kWidth, 0.0);
    if constexpr (kSecond) {
      for (auto& line : tangent_lines_) std::fill(line.begin(), line.end(), 0.0);
      tangent_lines_[0][1] = directions_[0];
      for (auto& list : tangents_) std::fill_n(list.begin(), kWidth, 0.0);
    }
    const StopCheck check;
    for (int64_t d = 1; d < diagonals(); ++d) {
      check(16 * (last(d) - first(d) + 1));
      const Line &one = lines_[(d - 1) % 3], &two = lines_[(d - 2 + 3) % 3];
      Line& here = lines_[d % 3];
      const Line &d_one = tangent_lines_[(d - 1) % 3], &d_two = tangent_lines_[(d - 2 + 3) % 3];
      Line& d_here = tangent_lines_[d % 3];
      for (int64_t i = first(d), at = start_[d] + i; i <= last(d); i += kWidth, at += kWidth) {
        const Mask<double> there = lanes_below(last(d) + 1 - i);
        // Before the cell: diagonally, above, to the left.
        const Vec<double> x[3] = {load(&two[i]), load(&one[i]), load(&one[i + 1])};
        Vec<double> shares[3];
        const Vec<double> best = smoothed_(x, shares);
        const Vec<double> value = load(&cells_[at]) + best;
        store<double>(&here[i + 1], there ? value : splat(-kInf<double>));
        for (int k = 0; k < 3; ++k) {
          shares[k] = there ? shares[k] : splat(0.0);
          store<double>(&shares_[k][at], shares[k]);
        }
        if constexpr (kSecond) {
          const Vec<double> dx[3] = {load(&d_two[i]), load(&d_one[i]), load(&d_one[i + 1])};
          Vec<double> mean = splat(0.0), plain = splat(0.0), count = splat(0.0);
          for (int k = 0; k < 3; ++k) {
            mean += shares[k] * dx[k];
            plain += shares[k] > 0.0 ? dx[k] : splat(0.0);
            count += shares[k] > 0.0 ? splat(1.0) : splat(0.0);
          }
          plain = plain / larger<double>(count, splat(1.0));
          for (int k = 0; k < 3; ++k) {
            store<double>(&tangents_[k][at], smoothed_.tangent(shares[k], dx[k], mean, plain));
          }
          const Vec<double> moved = load(&directions_[at]) + mean;
          store<double>(&d_here[i + 1], there ? moved : splat(0.0));
        }
      }
    }
    return lines_[(diagonals() - 1) % 3][m_];
  }

  // From the last cell back: what a cell has, it hands to the three before it by their shares.
  template <bool kSecond>
  void back_sweep() {
    // Handed over, by anti-diagonal: diagonal steps two lines back (of three lines in turns),
    // steps from above and from the left one line back.
    Line* across[3] = {&lines_[0], &lines_[1], &lines_[2]};
    Line *down = &more_[0], *right = &more_[1];
    Line* d_across[3] = {&tangent_lines_[0], &tangent_lines_[1], &tangent_lines_[2]};
    Line *d_down = &more_[2], *d_right = &more_[3];
    for (auto& line : lines_) std::fill(line.begin(), line.end(), 0.0);
    for (int k = 0; k < (kSecond ? 4 : 2); ++k) more_[k].assign(lines_[0].size(), 0.0);
    if constexpr (kSecond) {
      for (auto& line : tangent_lines_) std::fill(line.begin(), line.end(), 0.0);
    }
    const int64_t end = diagonals() - 1;
    const StopCheck check;
    for (int64_t d = end; d >= 0; --d) {
      check(16 * (last(d) - first(d) + 1));
      const Line &far = *across[(d + 2) % 3], &d_far = *d_across[(d + 2) % 3];
      Line &near = *across[d % 3], &d_near = *d_across[d % 3];
      // A vector reads row i + 1 of `down` before the next one writes it, and writes only rows that
      // it has read.
      for (int64_t i = first(d), at = start_[d] + i; i <= last(d); i += kWidth, at += kWidth) {
        Vec<double> has = load(&far[i + 1]) + load(&(*down)[i + 1]) + load(&(*right)[i]);
        if (d == end) has = splat(1.0);
        const Vec<double> q[3] = {load(&shares_[0][at]), load(&shares_[1][at]),
                                  load(&shares_[2][at])};
        store<double>(&cells_[at], has);
        if constexpr (kSecond) {
          const Vec<double> moved =
              load(&d_far[i + 1]) + load(&(*d_down)[i + 1]) + load(&(*d_right)[i]);
          const Vec<double> p[3] = {load(&tangents_[0][at]), load(&tangents_[1][at]),
                                    load(&tangents_[2][at])};
          store<double>(&directions_[at], moved);
          store<double>(&d_near[i], moved * q[0] + has * p[0]);
          store<double>(&(*d_down)[i], moved * q[1] + has * p[1]);
          store<double>(&(*d_right)[i], moved * q[2] + has * p[2]);
        }
        store<double>(&near[i], has * q[0]);
        store<double>(&(*down)[i], has * q[1]);
        store<double>(&(*right)[i], has * q[2]);
      }
    }
  }

  int64_t stride_ = 0, m_ = 0, n_ = 0;
  Smoothed smoothed_{1.0};
  std::vector<int64_t> start_;              // of an anti-diagonal, less its first row
  std::vector<double> cells_, directions_;  // in: scores and a direction; out: their results
  std::vector<double> shares_[3], tangents_[3];
  Line lines_[3], tangent_lines_[3], more_[4];
};

// A sweep whose memory is that of the thread's last instance, unless that was a large one. What is
// lent is not there: a call within a call (by a signal's handler) gets its own.
template <class Smoothed>
class BorrowedSweep {
 public:
  BorrowedSweep() : mine_(std::move(kept())) { give_up(mine_.bytes()); }
  ~BorrowedSweep() {
    if (kept().bytes() == 0 && may_keep(mine_.bytes())) kept() = std::move(mine_);
  }
  BorrowedSweep(const BorrowedSweep&) = delete;
  BorrowedSweep& operator=(const BorrowedSweep&) = delete;
  AlignmentSweep<Smoothed>* operator->() { return &mine_; }

 private:
  struct Owner {
    AlignmentSweep<Smoothed> sweep;
    ~Owner() { give_up(sweep.bytes()); }
  };

  static AlignmentSweep<Smoothed>& kept() {
    static thread_local Owner here;
    return here.sweep;
  }

  AlignmentSweep<Smoothed> mine_;
};

// values[i], and the expected alignments unless `gradients` is null (0 in padding).
template <class Smoothed>
int alignment_values(const Instances& at, double gamma, double* values, double* gradients) {
  return for_instances(at.count, at.count * at.parts * 16, [&](int64_t i) {
    BorrowedSweep<Smoothed> sweep;
    sweep->prepare(at.layout[1], at.size_of(i), gamma, false);
    values[i] = sweep->forward(at.scores_of(i));
    if (gradients == nullptr) return;
    std::fill_n(gradients + i * at.parts, at.parts, 0.0);
    sweep->gradient(gradients + i * at.parts);
  });
}

// Derivatives of the expected alignments along `directions`, of the scores' shape.
template <class Smoothed>
int alignment_products(const Instances& at, const double* directions, double gamma, double* out) {
  return for_instances(at.count, at.count * at.parts * 32, [&](int64_t i) {
    BorrowedSweep<Smoothed> sweep;
    sweep->prepare(at.layout[1], at.size_of(i), gamma, true);
    sweep->forward(at.scores_of(i), directions + i * at.parts);
    std::fill_n(out + i * at.parts, at.parts, 0.0);
    sweep->product(out + i * at.parts);
  });
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
