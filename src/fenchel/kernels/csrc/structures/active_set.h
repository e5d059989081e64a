// SparseMAP of one instance by the active-set method, through its oracle alone:
//
//   max over weights p of the members:  <scores, mean> - |unary part of mean|^2 / 2
//
// The members with a weight form a face on which the maximum is known in closed form; the oracle
// then names the member that promises most, which enters. Members whose weight falls to 0 leave.
// The value rises with every change, so no face comes twice and the end is the exact solution.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "affine_face.h"
#include "members.h"
#include "oracle.h"
#include "structures_table.h"

namespace fenchel {

struct Outcome {
  double gap;
  int64_t iterations;
  int64_t status;
};

namespace FENCHEL_ISA {

template <class Oracle>
class ActiveSet {
 public:
  ActiveSet(const double* scores, int64_t parts, int64_t n_unary, const int64_t* layout,
            const int64_t* size)
      : scores_(scores),
        n_unary_(n_unary),
        oracle_(layout, size),
        members_(scores, n_unary, Oracle::most_parts(layout)),
        slopes_(scores, scores + parts),
        means_(n_unary),
        fresh_(std::max<int64_t>(Oracle::most_parts(layout), 1)) {}

  // With `complete`, members of weight 0 follow until there are as many as the face has dimensions.
  Outcome solve(int64_t max_iter, double tol, bool complete) {
    tol = std::max(tol, 64 * kEps);
    const Outcome outcome = run(max_iter, tol);
    if (outcome.status == FENCHEL_INFEASIBLE) return outcome;
    normalize();
    if (complete) fill_face(tol, max_iter - outcome.iterations);
    return outcome;
  }

  // The means of all parts; adds to zeros.
  void write_means(double* out) const {
    for (int64_t i = 0; i < members_.size(); ++i) {
      const int32_t* const list = members_.list(i);
      for (int64_t j = 0; j < members_.length(i); ++j) out[list[j]] += weights_[i];
    }
  }

  void keep(Face& out) const {
    const int64_t size = members_.size();
    out.weights.assign(weights_.begin(), weights_.begin() + size);
    out.matrix.reserve(size * size);
    for (int64_t i = 0; i < size; ++i) {
      const int32_t* const list = members_.list(i);
      out.parts.insert(out.parts.end(), list, list + members_.length(i));
      out.ends.push_back(static_cast<int32_t>(out.parts.size()));
      out.matrix.insert(out.matrix.end(), face_.row(i), face_.row(i) + size);
    }
  }

 private:
  static constexpr int64_t kRepairEvery = 64;
  static constexpr double kEps = std::numeric_limits<double>::epsilon();
  // Points are vectors of small whole numbers: a squared distance this small is rounding.
  static constexpr double kFlat = 1e-9;

  Outcome run(int64_t max_iter, double tol) {
    if (!ask()) return {0.0, 0, FENCHEL_INFEASIBLE};
    const double norm2 = members_.overlaps(nullptr);
    members_.enter();
    face_.start(norm2);
    make_room();
    weights_[0] = 1.0;

    int64_t iterations = 0;
    bool repaired = false;  // since the last member entered
    while (true) {
      find_means();
      ask();
      const double gap = candidate_gap();
      const double enough = tol * scale_;
      bool done = gap <= enough;
      if (!done && iterations >= max_iter) return {gap, iterations, FENCHEL_MAX_ITER};
      if (!done) {
        done = !enter(gap, enough);
        if (!done) {
          ++iterations;
          repaired = false;
          if (iterations % kRepairEvery == 0) repair(enough);
          continue;
        }
      }
      // Nothing better is to be had, unless the weights have lost digits on the way; of those, a
      // candidate far out in the members' hull needs more.
      if (!repaired && repair(gap <= enough ? enough : enough / 64)) {
        repaired = true;
        continue;
      }
      return {std::max(gap, 0.0), iterations, gap <= enough ? FENCHEL_SOLVED : FENCHEL_STALLED};
    }
  }

  // The best member for the present slopes becomes the candidate; false if there is none.
  bool ask() {
    check_(n_unary_ + members_.size() * members_.size());
    const int64_t used = oracle_.argmax(slopes_.data(), fresh_.data());
    if (used == kNone) return false;
    score_ = members_.propose(fresh_.data(), used);
    scale_ = std::max(scale_, 1.0 + members_.candidate_size());
    return true;
  }

  void make_room() {
    const size_t room = static_cast<size_t>(face_.width());
    if (weights_.size() >= room) return;
    for (auto* v : {&weights_, &overlaps_, &step_, &slack_}) v->resize(2 * room, 0.0);
  }

  void find_means() {
    std::fill(means_.begin(), means_.end(), 0.0);
    members_.add_to(weights_.data(), means_.data());
    double norm2 = 0;
    for (int64_t u = 0; u < n_unary_; ++u) {
      slopes_[u] = scores_[u] - means_[u];
      norm2 += means_[u] * means_[u];
    }
    norm2_ = norm2;
  }

  // How much more the candidate scores, by the slopes, than the mean.
  double candidate_gap() const {
    double ahead = 0;
    for (int64_t i = 0; i < members_.size(); ++i) {
      ahead += weights_[i] * (score_ - members_.score(i));
    }
    return ahead - (members_.candidate_times(means_.data()) - norm2_);
  }

  void remove(int64_t j) {
    const int64_t last = members_.size() - 1;
    members_.leave(j);
    face_.leave(j);
    weights_[j] = weights_[last];
    weights_[last] = 0.0;
  }

  double tiny() const { return 4 * kEps * scale_; }  // a weight this small is 0

  // The candidate enters and all weights are corrected; false if it is nothing new.
  bool enter(double gap, double enough) {
    std::fill(overlaps_.begin(), overlaps_.end(), 0.0);
    const double norm2 = members_.overlaps(overlaps_.data());
    double apart = face_.distance2(overlaps_.data(), norm2);
    if (apart < 1e-4 * (1 + norm2)) apart = members_.distance2(face_.coordinates());
    double weight = 0;
    if (apart <= kFlat * (1 + norm2)) {
      if (members_.size() == 1) return replace(norm2, enough);
      weight = exchange(enough);
      if (weight < 0) return false;
      // The point that left was the last one's to follow.
      std::fill(overlaps_.begin(), overlaps_.end(), 0.0);
      members_.overlaps(overlaps_.data());
      apart = std::max(face_.distance2(overlaps_.data(), norm2), kFlat * kFlat);
    }
    face_.enter(apart);
    members_.enter();
    make_room();
    weights_[members_.size() - 1] = weight;
    climb(gap);
    return true;
  }

  // The candidate stands where the only member does; the better one stays.
  bool replace(double norm2, double enough) {
    if (score_ - members_.score(0) <= enough) return false;
    members_.leave(0);
    members_.enter();
    face_.start(norm2);
    return true;
  }

  // The candidate is an affine combination of the members, as far as the quadratic term can see.
  // Weight moves to it along that combination, which the scores of the other parts decide, until a
  // member has none left; that one leaves. Returns the candidate's weight, or -1 if nothing is won.
  double exchange(double enough) {
    const double* const a = face_.coordinates();
    double gain = score_;
    for (int64_t i = 0; i < members_.size(); ++i) gain -= a[i] * members_.score(i);
    if (gain <= enough) return -1;
    double length = std::numeric_limits<double>::infinity(), share = 0;
    int64_t out = -1;
    for (int64_t i = 0; i < members_.size(); ++i) {
      if (a[i] <= 1e-6) continue;  // rounding
      const double ratio = weights_[i] / a[i];
      if (ratio < length || (ratio == length && a[i] > share)) {
        length = ratio;
        share = a[i];
        out = i;
      }
    }
    if (out < 0) return -1;
    for (int64_t i = 0; i < members_.size(); ++i) {
      weights_[i] = std::max(weights_[i] - length * a[i], 0.0);
    }
    remove(out);
    return length;
  }

  // From weights that are best on the members but the last, whose slope is `gap` above theirs, to
  // those that are best on all of them: that way is a column of the face's matrix. Where it leaves
  // the simplex a member goes, and the rest of the way changes.
  void climb(double gap) {
    int64_t fresh = members_.size() - 1;
    while (members_.size() > 1) {
      const double* const way = face_.row(fresh);
      double t = 1;
      int64_t out = -1;
      for (int64_t i = 0; i < members_.size(); ++i) {
        const double change = gap * way[i];
        if (weights_[i] + change > tiny() || i == fresh) continue;
        const double ratio = change < 0 ? std::min(1.0, weights_[i] / -change) : 1.0;
        if (out < 0 || ratio < t) {
          t = ratio;
          out = i;
        }
      }
      for (int64_t i = 0; i < members_.size(); ++i) {
        weights_[i] = std::max(weights_[i] + t * gap * way[i], 0.0);
      }
      if (out < 0) return;
      if (fresh == members_.size() - 1) fresh = out;
      remove(out);
      gap *= 1 - t;
    }
    weights_[0] = 1.0;
  }

  // Corrects the weights by what the members' slopes, which must be equal, say is wrong with them;
  // false if nothing is.
  bool repair(double enough) {
    bool changed = false;
    for (int round = 0; round < 4; ++round) {
      normalize();
      find_means();
      if (members_.size() == 1) return changed;
      if (round == 3) rebuild();
      if (spread() <= enough) return changed;
      changed = true;
      face_.times(slack_.data(), step_.data());
      double t = 1;
      int64_t out = -1;
      for (int64_t i = 0; i < members_.size(); ++i) {
        if (weights_[i] + step_[i] > 0 || step_[i] >= 0) continue;
        const double ratio = weights_[i] / -step_[i];
        if (ratio <= t) {
          t = ratio;
          out = i;
        }
      }
      for (int64_t i = 0; i < members_.size(); ++i) {
        weights_[i] = std::max(weights_[i] + t * step_[i], 0.0);
      }
      if (out >= 0) remove(out);
    }
    normalize();
    return changed;
  }

  // The solution may need fewer members than its face has dimensions (all scores equal, say), or
  // some weights may be too small to be found; but derivatives need all directions of the face. Its
  // other members are the best ones for slopes that are pushed a little across the members' hull,
  // in which the solution lies. Once a random push finds none, there is none: a linear function
  // whose maximum over a face is inside of it is constant there.
  void fill_face(double tol, int64_t budget) {
    if (members_.size() == 1) return;  // a corner of the polytope: it does not move
    const double least = 16 * tol;
    double push = std::max(1e-7, 64 * least);
    uint64_t state = 0;
    noise_.resize(n_unary_);
    across_.resize(n_unary_);
    for (double& x : noise_) x = random(state);
    find_means();
    aim();
    if (bent()) {
      rebuild();
      aim();
    }
    for (; budget > 0 && push >= least; --budget) {
      for (int64_t u = 0; u < n_unary_; ++u) {
        slopes_[u] = scores_[u] - means_[u] + push * scale_ * across_[u];
      }
      ask();
      if (-candidate_gap() > 4 * tol * scale_) {
        push /= 64;  // it went past the face
      } else if (join()) {
        aim();
      } else {
        return;
      }
    }
  }

  // What is left of the noise when nothing of it lies in the hull of the members.
  void aim() {
    std::fill(slack_.begin(), slack_.end(), 0.0);
    for (int64_t i = 0; i < members_.size(); ++i) {
      slack_[i] = members_.member_times(i, noise_.data());
    }
    face_.times(slack_.data(), step_.data());
    for (int64_t i = 0; i < members_.size(); ++i) step_[i] = -step_[i];
    std::copy(noise_.begin(), noise_.end(), across_.begin());
    members_.add_to(step_.data(), across_.data());
  }

  // Whether that failed: the face's matrix has lost its digits.
  bool bent() const {
    double low = 0, high = 0;
    for (int64_t i = 0; i < members_.size(); ++i) {
      const double along = members_.member_times(i, across_.data());
      low = i == 0 ? along : std::min(low, along);
      high = i == 0 ? along : std::max(high, along);
    }
    return high - low > 1e-11;
  }

  // The candidate becomes a member of weight 0 if that adds a dimension.
  bool join() {
    std::fill(overlaps_.begin(), overlaps_.end(), 0.0);
    const double norm2 = members_.overlaps(overlaps_.data());
    const double apart = face_.distance2(overlaps_.data(), norm2);
    if (apart <= 1e-6 * (1 + norm2)) return false;
    face_.enter(apart);
    members_.enter();
    make_room();
    return true;
  }

  // Numbers between -1 and 1, the same ones each time (splitmix64).
  static double random(uint64_t& state) {
    uint64_t x = state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return static_cast<double>(static_cast<int64_t>(x ^ (x >> 31))) * 0x1p-63;
  }

  // The face's matrix anew, without what many corrections have done to it; unless it is singular.
  void rebuild() {
    AffineFace face;
    face.start(members_.earlier_overlaps(0, overlaps_.data()));
    for (int64_t i = 1; i < members_.size(); ++i) {
      check_(members_.size() * members_.size());
      std::fill(overlaps_.begin(), overlaps_.end(), 0.0);
      const double norm2 = members_.earlier_overlaps(i, overlaps_.data());
      const double apart = face.distance2(overlaps_.data(), norm2);
      if (apart <= kFlat * kFlat) return;
      face.enter(apart);
    }
    std::swap(face, face_);
  }

  void normalize() {
    double sum = 0;
    for (int64_t i = 0; i < members_.size(); ++i) sum += weights_[i];
    for (int64_t i = 0; i < members_.size(); ++i) weights_[i] /= sum;
  }

  // How much the members' slopes differ; leaves them, centred, in slack_.
  double spread() {
    std::fill(slack_.begin(), slack_.end(), 0.0);
    double low = 0, high = 0;
    for (int64_t i = 0; i < members_.size(); ++i) {
      slack_[i] = (members_.score(i) - members_.score(0)) - members_.member_times(i, means_.data());
      if (i == 0) low = high = slack_[0];
      low = std::min(low, slack_[i]);
      high = std::max(high, slack_[i]);
    }
    const double middle = 0.5 * (low + high);
    for (int64_t i = 0; i < members_.size(); ++i) slack_[i] -= middle;
    return high - low;
  }

  const StopCheck check_;
  const double* scores_;
  int64_t n_unary_;
  Oracle oracle_;
  Members members_;
  AffineFace face_;
  std::vector<double> slopes_, means_;  // of all parts; of the unary ones
  std::vector<int32_t> fresh_;
  std::vector<double> noise_, across_;                     // of the unary parts
  std::vector<double> weights_, overlaps_, step_, slack_;  // one a member, zeros behind them
  double norm2_ = 0, score_ = 0, scale_ = 1;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
