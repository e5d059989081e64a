// Several sequences of one chain: random ones, and the k best.
#pragma once

#include <algorithm>
#include <vector>

#include "sequence_dp.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Forward filtering, backward sampling: each tag given the one behind it, from one uniform number.
class SequenceSampler {
 public:
  SequenceSampler(const SequenceLayout& at, const double* scores)
      : at_(at),
        scores_(scores),
        program_(at),
        weights_(whole_vectors(at.tags)),
        path_(at.length) {}

  // The log-partition; must come first, and be finite.
  double prepare() { return program_.value(scores_); }

  // A sequence from `length` uniform numbers, as a list of parts.
  int64_t draw(const double* uniform, int32_t* parts) {
    const int64_t k = at_.tags;
    const StopCheck check;
    for (int64_t t = at_.length - 1; t >= 0; --t) {
      check(k);
      const double* v = program_.messages(t);
      const bool onward = t + 1 < at_.length && at_.kind != FENCHEL_NO_TRANSITIONS;
      const double* column = onward ? scores_ + at_.transitions(t) + path_[t + 1] : nullptr;
      for (int64_t i = 0; i < k; ++i) weights_[i] = onward ? v[i] + column[i * k] : v[i];
      std::fill(weights_.begin() + k, weights_.end(), -kInf<double>);
      const int64_t padded = static_cast<int64_t>(weights_.size());
      const double top = max_of(weights_.data(), padded);
      for (int64_t i = 0; i < padded; i += kLanes<double>) {
        store(&weights_[i], vector_exp(load(&weights_[i]) - top));
      }
      double total = 0, seen = 0;
      for (int64_t i = 0; i < k; ++i) total += weights_[i];
      const double bar = uniform[t] * total;
      for (int64_t i = 0; i < k; ++i) {
        if (weights_[i] == 0) continue;
        path_[t] = static_cast<int32_t>(i);  // the last possible one, should rounding say none
        seen += weights_[i];
        if (seen > bar) break;
      }
    }
    return at_.parts_of(path_.data(), parts);
  }

 private:
  SequenceLayout at_;
  const double* scores_;
  SequenceProgram<FENCHEL_ENTROPY> program_;
  std::vector<double> weights_;
  std::vector<int32_t> path_;
};

// k-best Viterbi: at every tag the k best ways there, merged from the sorted lists of the tags
// before. Lists of parts (k, most) and scores (k): -1 and -inf where there are fewer than k.
inline void sequence_k_best(const SequenceLayout& at, const double* scores, int64_t most,
                            int64_t how_many, int32_t* parts, double* values) {
  struct Way {
    double score;
    int32_t tag, rank;  // the tag before and which of its ways
    bool operator<(
        const Way& other) const {  // of equals the lower tag, then the lower rank, is first
      if (score != other.score) return score < other.score;
      return tag != other.tag ? tag > other.tag : rank > other.rank;
    }
  };
  const int64_t k = at.tags, length = at.length;
  std::vector<std::vector<Way>> ways(length * k);
  std::vector<Way> heap;
  const StopCheck check;
  const auto merge = [&](const std::vector<Way>* lists, const double* column, double extra,
                         std::vector<Way>& out) {
    heap.clear();
    for (int64_t i = 0; i < k; ++i) {
      const double step = column ? column[i * k] : 0.0;
      if (!lists[i].empty() && step > -kInf<double>) {
        heap.push_back({lists[i][0].score + step, static_cast<int32_t>(i), 0});
      }
    }
    std::make_heap(heap.begin(), heap.end());
    check(k);
    while (!heap.empty() && static_cast<int64_t>(out.size()) < how_many) {
      check(16);
      std::pop_heap(heap.begin(), heap.end());
      Way& best = heap.back();
      out.push_back({best.score + extra, best.tag, best.rank});
      const std::vector<Way>& list = lists[best.tag];
      if (static_cast<size_t>(++best.rank) < list.size()) {
        best.score = list[best.rank].score + (column ? column[best.tag * k] : 0.0);
        std::push_heap(heap.begin(), heap.end());
      } else {
        heap.pop_back();
      }
    }
  };
  for (int64_t t = 0; t < length; ++t) {
    for (int64_t j = 0; j < k; ++j) {
      double here = scores[t * k + j];
      if (t == length - 1 && at.end >= 0) here += scores[at.end + j];
      if (here == -kInf<double>) continue;
      if (t == 0) {
        const double first = at.start >= 0 ? scores[at.start + j] : 0.0;
        if (first > -kInf<double>) ways[j].push_back({first + here, 0, 0});
      } else {
        const double* column =
            at.kind == FENCHEL_NO_TRANSITIONS ? nullptr : scores + at.transitions(t - 1) + j;
        merge(&ways[(t - 1) * k], column, here, ways[t * k + j]);
      }
    }
  }
  std::vector<Way> ends;
  merge(&ways[(length - 1) * k], nullptr, 0.0, ends);
  std::vector<int32_t> path(length);
  for (int64_t r = 0; r < how_many; ++r) {
    int32_t* list = parts + r * most;
    int64_t used = 0;
    check(length);
    values[r] = -kInf<double>;
    if (r < static_cast<int64_t>(ends.size())) {
      Way way = ends[r];
      values[r] = way.score;
      for (int64_t t = length - 1; t >= 0; --t) {
        path[t] = way.tag;
        way = ways[t * k + way.tag][way.rank];
      }
      used = at.parts_of(path.data(), list);
    }
    std::fill(list + used, list + most, -1);
  }
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
