// Dependency trees; layout: n, single root (0 or 1); size: how many of the n words are there.
// Part (word, head) is word * (n + 1) + head, where head 0 is the root and head j + 1 word j.
//
// The best tree by contraction of cycles (Chu & Liu, Edmonds), on a dense matrix in the manner of
// Tarjan: follow best heads from any word until the path meets the root, a word that is already
// attached, or itself. A cycle becomes one node, whose row of heads is the best way to break it.
// Every node is looked at once and every contraction costs (nodes) x (length of its cycle): O(n^2).
//
// One root exactly: the algorithm only adds, subtracts and compares, so weights may come from any
// ordered group, here pairs (-number of root arcs, score) compared in this order. Cycles contain no
// root arc, so the first half of a contracted arc's weight stays what it was: the rule becomes
// "take the root only if no other head is left". The answer has the fewest root arcs there can be,
// and among those trees the best score, with no large constant to swallow the scores.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "../oracle.h"

namespace fenchel {
namespace FENCHEL_ISA {

class TreeOracle {
 public:
  TreeOracle(const int64_t* layout, const int64_t* size)
      : columns_(layout[0] + 1),
        single_root_(layout[1] != 0),
        words_(size[0]),
        nodes_(size[0] + 1),
        score_(new double[nodes_ * nodes_]),
        arc_(new int32_t[nodes_ * nodes_]),
        node_in_(nodes_),
        state_(nodes_),
        live_(nodes_),
        chosen_(2 * nodes_),
        parent_(2 * nodes_) {}

  static int64_t most_parts(const int64_t* layout) { return layout[0]; }

  int64_t argmax(const double* scores, int32_t* parts) {
    const StopCheck check;
    load(scores, check);
    int64_t root_arcs = 0;
    for (int64_t start = 1; start < nodes_; ++start) {
      if (state_[start] != kNew) continue;  // attached, or part of a node that is
      path_.clear();
      int64_t slot = start;
      for (;;) {
        state_[slot] = kOnPath;
        path_.push_back(slot);
        const int64_t head = best_head(slot);
        if (head < 0) return kNone;
        chosen_[node_in_[slot]] = arc_[slot * nodes_ + head];
        check(live_count_);
        if (state_[head] == kOnPath) {
          check(live_count_ * static_cast<int64_t>(path_.size()));
          slot = contract(head);
          continue;
        }
        if (head == 0) ++root_arcs;
        if (state_[head] == kAttached) break;
        slot = head;
      }
      for (const int64_t on_path : path_) state_[on_path] = kAttached;
    }
    if (single_root_ && root_arcs != 1) return kNone;
    expand();
    for (int64_t word = 0; word < words_; ++word) parts[word] = chosen_[word + 1];
    return words_;
  }

 private:
  enum State : int8_t { kNew, kOnPath, kAttached, kGone };
  static constexpr double kForbidden = -std::numeric_limits<double>::infinity();

  // Slot 0 is the root, slot j + 1 word j; a contracted node takes the slot of one of its members.
  void load(const double* scores, const StopCheck& check) {
    for (int64_t word = 0; word < words_; ++word) {
      const int64_t row = (word + 1) * nodes_;
      for (int64_t head = 0; head < nodes_; ++head) {
        score_[row + head] = head == word + 1 ? kForbidden : scores[word * columns_ + head];
        arc_[row + head] = static_cast<int32_t>(word * columns_ + head);
      }
      check(nodes_);
    }
    for (int64_t slot = 0; slot < nodes_; ++slot) {
      node_in_[slot] = static_cast<int32_t>(slot);
      live_[slot] = static_cast<int32_t>(slot);
      state_[slot] = kNew;
    }
    state_[0] = kAttached;
    live_count_ = nodes_;
    nodes_made_ = nodes_;
    std::fill(parent_.begin(), parent_.end(), 0);
  }

  // The best head of a slot, the first on ties; -1 if none is finite.
  int64_t best_head(int64_t slot) const {
    const double* row = &score_[slot * nodes_];
    int64_t best = -1;
    double best_score = kForbidden;
    for (int64_t j = single_root_ ? 1 : 0; j < live_count_; ++j) {  // live_[0] is the root
      if (row[live_[j]] > best_score) {
        best = live_[j];
        best_score = row[best];
      }
    }
    if (best < 0 && single_root_ && row[0] > kForbidden) return 0;
    return best;
  }

  // Make one node of the end of the path from slot `first` on; returns its slot.
  int64_t contract(int64_t first) {
    const int32_t made = static_cast<int32_t>(nodes_made_++);
    const int64_t begin = std::find(path_.begin(), path_.end(), first) - path_.begin();
    const int64_t end = static_cast<int64_t>(path_.size());
    for (int64_t c = begin; c < end; ++c) {
      const int64_t member = path_[c];
      // The head of a member is the one after it on the path; that of the last is `first`.
      const double kept = score_[member * nodes_ + (c + 1 < end ? path_[c + 1] : first)];
      double* row = &score_[member * nodes_];
      for (int64_t j = 0; j < live_count_; ++j) row[live_[j]] -= kept;
      parent_[node_in_[member]] = made;
      state_[member] = kGone;
    }
    state_[first] = kOnPath;
    drop_gone();
    double* into = &score_[first * nodes_];
    int32_t* into_arc = &arc_[first * nodes_];
    for (int64_t c = begin + 1; c < end; ++c) {
      const double* row = &score_[path_[c] * nodes_];
      const int32_t* row_arc = &arc_[path_[c] * nodes_];
      for (int64_t j = 0; j < live_count_; ++j) {
        const int64_t head = live_[j];
        if (row[head] > into[head]) {
          into[head] = row[head];
          into_arc[head] = row_arc[head];
        }
      }
    }
    into[first] = kForbidden;
    for (int64_t j = 1; j < live_count_; ++j) {
      const int64_t slot = live_[j];
      if (slot == first) continue;
      double* row = &score_[slot * nodes_];
      for (int64_t c = begin + 1; c < end; ++c) {
        if (row[path_[c]] > row[first]) {
          row[first] = row[path_[c]];
          arc_[slot * nodes_ + first] = arc_[slot * nodes_ + path_[c]];
        }
      }
    }
    node_in_[first] = made;
    path_.resize(begin);
    return first;
  }

  void drop_gone() {
    int64_t kept = 0;
    for (int64_t j = 0; j < live_count_; ++j) {
      if (state_[live_[j]] != kGone) live_[kept++] = live_[j];
    }
    live_count_ = kept;
  }

  // The arc into a contracted node replaces the chosen arc of the member that it enters.
  void expand() {
    for (int64_t node = nodes_made_ - 1; node >= nodes_; --node) {
      int64_t member = chosen_[node] / columns_ + 1;
      while (parent_[member] != node) member = parent_[member];
      chosen_[member] = chosen_[node];
    }
  }

  int64_t columns_;
  bool single_root_;
  int64_t words_, nodes_;
  int64_t live_count_ = 0, nodes_made_ = 0;
  // Not filled here: `load` does that, and asks between the rows whether to stop.
  std::unique_ptr<double[]> score_;  // (slot, head slot)
  std::unique_ptr<int32_t[]> arc_;   // the part that such an arc is
  std::vector<int32_t> node_in_;     // the node that a slot holds
  std::vector<State> state_;         // of a slot
  std::vector<int32_t> live_;        // slots in use, in order
  std::vector<int32_t> chosen_;      // of a node: the part that is its arc
  std::vector<int32_t> parent_;      // of a node: the one it was contracted into
  std::vector<int64_t> path_;
};

template <>
struct OracleOf<FENCHEL_TREE> {
  using type = TreeOracle;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
