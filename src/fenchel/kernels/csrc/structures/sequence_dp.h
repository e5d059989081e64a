// Smoothed dynamic programs on chains: the maximum over the tag before, at every tag of every
// position and at the end, is a smoothed one (entropy: log-sum-exp; l2: the largest
// <p, x> - |p|^2 / 2 over the simplex, whose p is sparsemax). Temperature 1.
//
// This is the form for every case, in the domain of scores. What a node chose is found again in the
// backward pass from one number a node, so that nothing of size T K^2 is kept.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "../elementary.h"
#include "exp_log.h"
#include "oracles/sequence.h"

namespace fenchel {
namespace FENCHEL_ISA {

inline int64_t whole_vectors(int64_t n) {
  return (n + kLanes<double> - 1) / kLanes<double> * kLanes<double>;
}

inline double sum_of(const double* x, int64_t padded) {
  Vec<double> sum = splat(0.0);
  for (int64_t j = 0; j < padded; j += kLanes<double>) sum += load(x + j);
  return sum_lanes<double>(sum);
}

inline double max_of(const double* x, int64_t padded) {
  Vec<double> best = splat(-kInf<double>);
  for (int64_t j = 0; j < padded; j += kLanes<double>) best = larger<double>(load(x + j), best);
  return max_lanes<double>(best);
}

// The scores of one position, with those of start and end where they count; padded with -inf.
inline void position_scores(const SequenceLayout& at, const double* scores, int64_t t, double fill,
                            int64_t padded, double* out) {
  for (int64_t j = 0; j < at.tags; ++j) out[j] = scores[t * at.tags + j];
  if (t == 0 && at.start >= 0) {
    for (int64_t j = 0; j < at.tags; ++j) out[j] += scores[at.start + j];
  }
  if (t == at.length - 1 && at.end >= 0) {
    for (int64_t j = 0; j < at.tags; ++j) out[j] += scores[at.end + j];
  }
  for (int64_t j = at.tags; j < padded; ++j) out[j] = fill;
}

// Writes the means of one position's parts: emission, and start and end where they count.
inline void position_means(const SequenceLayout& at, const double* u, int64_t t, double* means) {
  const size_t bytes = at.tags * sizeof(double);
  std::memcpy(means + t * at.tags, u, bytes);
  if (t == 0 && at.start >= 0) std::memcpy(means + at.start, u, bytes);
  if (t == at.length - 1 && at.end >= 0) std::memcpy(means + at.end, u, bytes);
}

template <fenchel_omega omega>
class SequenceProgram {
  static constexpr int kWidth = kLanes<double>;

 public:
  explicit SequenceProgram(const SequenceLayout& at)
      : at_(at),
        k_(at.tags),
        // Without transitions all tags of a position have the same node before them: one column.
        columns_(at.kind == FENCHEL_NO_TRANSITIONS ? kWidth : whole_vectors(k_)),
        padded_(whole_vectors(k_)),
        v_(at.length * padded_),
        norm_(at.length * columns_ + kWidth),
        line_(padded_ + kWidth),
        matrix_(k_ * columns_),
        zero_(k_ * kWidth) {
    for (int64_t i = 0; i < k_; ++i) {
      for (int64_t j = 0; j < kWidth; ++j) zero_[i * kWidth + j] = j == 0 ? 0.0 : -kInf<double>;
    }
  }

  // The smoothed maximum; -inf if no sequence has a finite score.
  double value(const double* scores) {
    double total = 0;
    begin(scores, -kInf<double>, matrix_, scored_);
    const StopCheck check;
    for (int64_t t = 0; t < at_.length; ++t) {
      check(k_ * columns_);
      double* v = v_.data() + t * padded_;
      position_scores(at_, scores, t, -kInf<double>, padded_, v);
      if (t > 0) {
        const double* m = step(scores, t, -kInf<double>, matrix_, scored_);
        nodes(v - padded_, m, columns_, line_.data(), norm_.data() + t * columns_);
        spread();
        for (int64_t j = 0; j < k_; ++j) v[j] += line_[j];
      }
      // Only differences count from here on: small numbers are exact ones.
      const double top = max_of(v, padded_);
      if (top == -kInf<double>) return top;
      for (int64_t j = 0; j < k_; ++j) v[j] -= top;
      total += top;
    }
    nodes(v_.data() + (at_.length - 1) * padded_, zero_.data(), kWidth, line_.data(), last_norm());
    return total + line_[0];
  }

  // After value(): its gradient. `means` holds zeros.
  void gradient(const double* scores, double* means) {
    std::vector<double> u(padded_), before(padded_), row(columns_);
    std::vector<double> sums(at_.kind == FENCHEL_SHARED ? k_ * columns_ : 0);
    const double* v = v_.data() + (at_.length - 1) * padded_;
    for (int64_t i = 0; i < k_; ++i) u[i] = chosen(splat(v[i]), splat(last_norm()[0]))[0];
    const StopCheck check;
    for (int64_t t = at_.length - 1;; --t) {
      check(k_ * columns_);
      position_means(at_, u.data(), t, means);
      if (t == 0) return finish(sums, means);
      gather(u.data());
      const double* m = step(scores, t, -kInf<double>, matrix_, scored_);
      const double* norm = norm_.data() + t * columns_;
      v -= padded_;
      for (int64_t i = 0; i < k_; ++i) {
        double* to = at_.kind == FENCHEL_SHARED ? sums.data() + i * columns_ : row.data();
        Vec<double> sum = splat(0.0);
        for (int64_t j = 0; j < columns_; j += kWidth) {
          const Vec<double> x = load(m + i * columns_ + j) + v[i];
          const Vec<double> flow = chosen(x, load(norm + j)) * load(u.data() + j);
          sum += flow;
          store(to + j, at_.kind == FENCHEL_SHARED ? load(to + j) + flow : flow);
        }
        if (at_.kind == FENCHEL_EACH_POSITION) emit(row.data(), t, i, means);
        before[i] = sum_lanes<double>(sum);
      }
      u.swap(before);
    }
  }

  // After value(): the Hessian times `direction`. `out` holds zeros.
  void product(const double* scores, const double* direction, double* out) {
    std::vector<double> moved(at_.length * padded_), center(at_.length * columns_ + kWidth);
    std::vector<double> u(padded_), du(padded_), before(padded_), change(padded_), row(columns_);
    std::vector<double> slope(k_ * columns_), sums(at_.kind == FENCHEL_SHARED ? k_ * columns_ : 0);
    std::vector<double> no_slope(k_ * kWidth);
    int64_t sloped = -1;
    begin(direction, 0.0, slope, sloped);
    const StopCheck check;
    for (int64_t t = 0; t < at_.length; ++t) {  // how the messages move
      check(k_ * columns_);
      double* dv = moved.data() + t * padded_;
      position_scores(at_, direction, t, 0.0, padded_, dv);
      if (t > 0) {
        const double* m = step(scores, t, -kInf<double>, matrix_, scored_);
        const double* dm = step(direction, t, 0.0, slope, sloped);
        moves(v_.data() + (t - 1) * padded_, dv - padded_, m, dm, columns_,
              norm_.data() + t * columns_, line_.data(), center.data() + t * columns_);
        spread();
        for (int64_t j = 0; j < k_; ++j) dv[j] += line_[j];
      }
      const double* v = v_.data() + t * padded_;
      const double shift = dv[std::max_element(v, v + k_) - v];
      for (int64_t j = 0; j < k_; ++j) dv[j] = v[j] == -kInf<double> ? 0.0 : dv[j] - shift;
    }
    const double* v = v_.data() + (at_.length - 1) * padded_;
    const double* dv = moved.data() + (at_.length - 1) * padded_;
    double* last = center.data() + at_.length * columns_;
    moves(v, dv, zero_.data(), no_slope.data(), kWidth, last_norm(), line_.data(), last);
    for (int64_t i = 0; i < k_; ++i) {
      const Vec<double> p = chosen(splat(v[i]), splat(last_norm()[0]));
      u[i] = p[0];
      du[i] = turned(p, splat(dv[i]), splat(last[0]))[0];
    }
    for (int64_t t = at_.length - 1;; --t) {
      check(k_ * columns_);
      position_means(at_, du.data(), t, out);
      if (t == 0) return finish(sums, out);
      gather(u.data());
      gather(du.data());
      const double* m = step(scores, t, -kInf<double>, matrix_, scored_);
      const double* dm = step(direction, t, 0.0, slope, sloped);
      const double* norm = norm_.data() + t * columns_;
      const double* middle = center.data() + t * columns_;
      v -= padded_;
      dv -= padded_;
      for (int64_t i = 0; i < k_; ++i) {
        double* to = at_.kind == FENCHEL_SHARED ? sums.data() + i * columns_ : row.data();
        Vec<double> sum = splat(0.0), dsum = splat(0.0);
        for (int64_t j = 0; j < columns_; j += kWidth) {
          const Vec<double> p = chosen(load(m + i * columns_ + j) + v[i], load(norm + j));
          const Vec<double> dp = turned(p, load(dm + i * columns_ + j) + dv[i], load(middle + j));
          const Vec<double> flow = dp * load(u.data() + j) + p * load(du.data() + j);
          sum += p * load(u.data() + j);
          dsum += flow;
          store(to + j, at_.kind == FENCHEL_SHARED ? load(to + j) + flow : flow);
        }
        if (at_.kind == FENCHEL_EACH_POSITION) emit(row.data(), t, i, out);
        before[i] = sum_lanes<double>(sum);
        change[i] = sum_lanes<double>(dsum);
      }
      u.swap(before);
      du.swap(change);
    }
  }

  // After value(): the messages of position t, up to a constant.
  const double* messages(int64_t t) const { return v_.data() + t * padded_; }

 private:
  double* last_norm() { return norm_.data() + at_.length * columns_; }

  // What a node gives to x, from the one number it kept.
  static Vec<double> chosen(Vec<double> x, Vec<double> norm) {
    if constexpr (omega == FENCHEL_ENTROPY) return vector_exp(x - norm);
    return larger<double>(x - norm, splat(0.0));
  }

  // How that moves with x.
  static Vec<double> turned(Vec<double> p, Vec<double> dx, Vec<double> center) {
    if constexpr (omega == FENCHEL_ENTROPY) return p * (dx - center);
    return p > 0.0 ? dx - center : splat(0.0);
  }

  // One node a column: its value, and the number from which `chosen` finds what it chose.
  void nodes(const double* v, const double* m, int64_t columns, double* value, double* norm) const {
    for (int64_t j = 0; j < columns; j += kWidth) {
      Vec<double> top = splat(-kInf<double>);
      for (int64_t i = 0; i < k_; ++i) top = larger<double>(load(m + i * columns + j) + v[i], top);
      const Mask<double> dead = top == -kInf<double>;
      const Vec<double> base = dead ? splat(0.0) : top;
      if constexpr (omega == FENCHEL_ENTROPY) {
        Vec<double> sum = splat(0.0);
        for (int64_t i = 0; i < k_; ++i) sum += vector_exp(load(m + i * columns + j) + v[i] - base);
        Vec<double> out = dead ? splat(1.0) : sum;
        out = base + log(out);
        store(value + j, dead ? top : out);
        store(norm + j, dead ? splat(kInf<double>) : out);
      } else {
        // Michelot: the threshold of those above the threshold, until they are the same ones.
        Vec<double> tau = splat(-1.0), count = splat(0.0);
        for (int64_t round = 0; round <= k_; ++round) {
          Vec<double> sum = splat(0.0), above = splat(0.0);
          for (int64_t i = 0; i < k_; ++i) {
            const Vec<double> x = load(m + i * columns + j) + v[i] - base;
            const Mask<double> in = x > tau;
            sum += in ? x : splat(0.0);
            above += in ? splat(1.0) : splat(0.0);
          }
          const Mask<double> same = above == count;
          tau = (same | dead) ? tau : (sum - 1.0) / above;
          if (!any<double>(~(same | dead))) break;
          count = above;
        }
        Vec<double> out = splat(0.0);
        for (int64_t i = 0; i < k_; ++i) {
          const Vec<double> x = load(m + i * columns + j) + v[i] - base;
          const Vec<double> p = x - tau;
          out += p > 0.0 ? p * (x - 0.5 * p) : splat(0.0);
        }
        store(value + j, dead ? top : base + out);
        store(norm + j, dead ? splat(kInf<double>) : base + tau);
      }
    }
  }

  // How the values of the nodes move with their inputs, and around what `turned` centers.
  void moves(const double* v, const double* dv, const double* m, const double* dm, int64_t columns,
             const double* norm, double* value, double* center) const {
    for (int64_t j = 0; j < columns; j += kWidth) {
      Vec<double> sum = splat(0.0), plain = splat(0.0), count = splat(0.0);
      for (int64_t i = 0; i < k_; ++i) {
        const Vec<double> p = chosen(load(m + i * columns + j) + v[i], load(norm + j));
        const Vec<double> dx = load(dm + i * columns + j) + dv[i];
        sum += p * dx;
        if constexpr (omega == FENCHEL_L2) {
          plain += p > 0.0 ? dx : splat(0.0);
          count += p > 0.0 ? splat(1.0) : splat(0.0);
        }
      }
      store(value + j, sum);
      if constexpr (omega == FENCHEL_ENTROPY) store(center + j, sum);
      if constexpr (omega == FENCHEL_L2)
        store(center + j, plain / (count > 0.0 ? count : splat(1.0)));
    }
  }

  // Room for the transitions of one step, filled already where all steps share them.
  void begin(const double* scores, double fill, std::vector<double>& room, int64_t& holds) const {
    if (at_.kind == FENCHEL_NO_TRANSITIONS) {
      for (int64_t i = 0; i < k_ * columns_; ++i) room[i] = i % columns_ == 0 ? 0.0 : fill;
    }
    holds = -1;
    if (at_.length > 1) step(scores, 1, fill, room, holds);
  }

  // The transitions into position t, in rows of whole vectors.
  const double* step(const double* scores, int64_t t, double fill, std::vector<double>& room,
                     int64_t& holds) const {
    const bool known = holds == t || (holds >= 0 && at_.kind != FENCHEL_EACH_POSITION);
    if (!known && at_.kind != FENCHEL_NO_TRANSITIONS) {
      const double* from = scores + at_.transitions(t - 1);
      for (int64_t i = 0; i < k_; ++i) {
        double* row = room.data() + i * columns_;
        for (int64_t j = 0; j < k_; ++j) row[j] = from[i * k_ + j];
        for (int64_t j = k_; j < columns_; ++j) row[j] = fill;
      }
    }
    holds = t;
    return room.data();
  }

  // Without transitions, the one column's number for every tag, and every tag's for the column.
  void spread() {
    if (at_.kind == FENCHEL_NO_TRANSITIONS)
      std::fill(line_.begin() + 1, line_.begin() + k_, line_[0]);
  }
  void gather(double* u) const {
    if (at_.kind != FENCHEL_NO_TRANSITIONS) return;
    u[0] = sum_of(u, padded_);
    std::fill(u + 1, u + padded_, 0.0);
  }

  void emit(const double* row, int64_t t, int64_t i, double* means) const {
    std::memcpy(means + at_.transitions(t - 1) + i * k_, row, k_ * sizeof(double));
  }
  void finish(const std::vector<double>& sums, double* means) const {
    if (at_.kind != FENCHEL_SHARED) return;
    for (int64_t i = 0; i < k_; ++i) {
      std::memcpy(means + at_.transitions(0) + i * k_, sums.data() + i * columns_,
                  k_ * sizeof(double));
    }
  }

  SequenceLayout at_;
  int64_t k_, columns_, padded_, scored_ = -1;
  std::vector<double> v_, norm_, line_, matrix_, zero_;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
