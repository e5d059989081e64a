// Members of a structure as lists of parts, the unary ones (those with a quadratic term) first.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace fenchel {
namespace FENCHEL_ISA {

class Members {
 public:
  Members(const double* scores, int64_t n_unary, int64_t most)
      : scores_(scores),
        n_unary_(n_unary),
        most_(std::max<int64_t>(most, 1)),
        counts_(n_unary, 0.0) {}

  int64_t size() const { return static_cast<int64_t>(slots_.size()); }
  double score(int64_t i) const { return slots_[i].score; }
  int64_t length(int64_t i) const { return slots_[i].length; }
  const int32_t* list(int64_t i) const { return lists_.data() + slots_[i].place * most_; }

  // A list that is a candidate until it enters; returns its score. Parts may repeat.
  double propose(const int32_t* parts, int64_t length) {
    if (free_.empty()) {
      free_.push_back(static_cast<int64_t>(lists_.size()) / most_);
      lists_.resize(lists_.size() + most_);
    }
    candidate_ = {free_.back(), 0, length, 0.0, 0.0};
    int32_t* const out = lists_.data() + candidate_.place * most_;
    int64_t front = 0, back = length;
    double sum = 0, size = 0;
    for (int64_t j = 0; j < length; ++j) {
      const int32_t part = parts[j];
      const double score = scores_[part];
      sum += score;
      size += std::fabs(score);
      out[part < n_unary_ ? front++ : --back] = part;
    }
    candidate_.unary = front;
    candidate_.score = sum;
    candidate_.size = size;
    return sum;
  }

  double candidate_size() const { return candidate_.size; }  // of its score, before cancellation
  double candidate_times(const double* unary) const { return times(candidate_, unary); }

  // Inner products of the candidate with the members; returns that with itself.
  double overlaps(double* out) {
    const int32_t* const parts = lists_.data() + candidate_.place * most_;
    for (int64_t j = 0; j < candidate_.unary; ++j) counts_[parts[j]] += 1.0;
    for (int64_t i = 0; i < size(); ++i) out[i] = times(slots_[i], counts_.data());
    const double own = times(candidate_, counts_.data());
    for (int64_t j = 0; j < candidate_.unary; ++j) counts_[parts[j]] = 0.0;
    return own;
  }

  // The same of member i with those before it.
  double earlier_overlaps(int64_t i, double* out) {
    add(slots_[i], 1.0, counts_.data());
    for (int64_t j = 0; j < i; ++j) out[j] = times(slots_[j], counts_.data());
    const double own = times(slots_[i], counts_.data());
    const int32_t* const parts = list(i);
    for (int64_t j = 0; j < slots_[i].unary; ++j) counts_[parts[j]] = 0.0;
    return own;
  }

  // The squared distance of the candidate from a combination of the members.
  double distance2(const double* weights) {
    for (int64_t i = 0; i < size(); ++i) add(slots_[i], -weights[i], counts_.data());
    add(candidate_, 1.0, counts_.data());
    double sum = 0;
    for (int64_t u = 0; u < n_unary_; ++u) {
      sum += counts_[u] * counts_[u];
      counts_[u] = 0.0;
    }
    return sum;
  }

  void enter() {
    free_.pop_back();
    slots_.push_back(candidate_);
  }

  void leave(int64_t j) {
    // Below the candidate's place, which is the last one.
    free_.insert(free_.empty() ? free_.end() : free_.end() - 1, slots_[j].place);
    slots_[j] = slots_.back();
    slots_.pop_back();
  }

  double member_times(int64_t i, const double* unary) const { return times(slots_[i], unary); }

  // unary += the weighted sum of the members.
  void add_to(const double* weights, double* unary) const {
    for (int64_t i = 0; i < size(); ++i) add(slots_[i], weights[i], unary);
  }

 private:
  struct Slot {
    int64_t place, unary, length;
    double score, size;
  };

  double times(const Slot& slot, const double* unary) const {
    const int32_t* const parts = lists_.data() + slot.place * most_;
    double a = 0, b = 0;  // two chains: the sum is what takes the time
    int64_t j = 0;
    for (; j + 1 < slot.unary; j += 2) {
      a += unary[parts[j]];
      b += unary[parts[j + 1]];
    }
    if (j < slot.unary) a += unary[parts[j]];
    return a + b;
  }

  void add(const Slot& slot, double weight, double* unary) const {
    const int32_t* const parts = lists_.data() + slot.place * most_;
    for (int64_t j = 0; j < slot.unary; ++j) unary[parts[j]] += weight;
  }

  const double* scores_;
  int64_t n_unary_, most_;
  std::vector<double> counts_;  // zeros, between calls
  std::vector<int32_t> lists_;
  std::vector<int64_t> free_;
  std::vector<Slot> slots_;
  Slot candidate_{};
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
