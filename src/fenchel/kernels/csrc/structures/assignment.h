// Assignments of the shorter side of a matrix to the longer one; layout: n, m; size: rows, columns.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "oracle.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Shortest augmenting paths with potentials. One line of the shorter side after the other enters
// the matching along the cheapest alternating path, which Dijkstra's search finds in reduced costs:
// O(short^2 long).
class AssignmentOracle {
 public:
  AssignmentOracle(const int64_t* layout, const int64_t* size)
      : stride_(layout[1]),
        wide_(size[0] <= size[1]),
        lines_(wide_ ? size[0] : size[1]),
        places_(wide_ ? size[1] : size[0]),
        costs_(lines_ * places_),
        line_price_(lines_),
        place_price_(places_),
        distance_(places_),
        before_(places_),
        line_at_(places_),
        open_(places_),
        parts_(lines_) {}

  static int64_t most_parts(const int64_t* layout) { return std::min(layout[0], layout[1]); }

  int64_t argmax(const double* scores, int32_t* parts) {
    for (int64_t i = 0; i < lines_; ++i) {
      for (int64_t j = 0; j < places_; ++j) {
        costs_[i * places_ + j] = -scores[wide_ ? i * stride_ + j : j * stride_ + i];
      }
    }
    std::fill(line_price_.begin(), line_price_.end(), 0.0);
    std::fill(place_price_.begin(), place_price_.end(), 0.0);
    std::fill(line_at_.begin(), line_at_.end(), kFree);
    for (int32_t line = 0; line < lines_; ++line) {
      if (!match(line)) return kNone;
    }
    for (int32_t place = 0; place < places_; ++place) {
      const int32_t line = line_at_[place];
      if (line == kFree) continue;
      parts_[line] = static_cast<int32_t>(wide_ ? line * stride_ + place : place * stride_ + line);
    }
    std::sort(parts_.begin(), parts_.end());
    std::copy(parts_.begin(), parts_.end(), parts);
    return lines_;
  }

 private:
  static constexpr int32_t kFree = -1;

  // Matches one more line; false if no free place is left at a finite distance.
  bool match(int32_t line) {
    constexpr double inf = std::numeric_limits<double>::infinity();
    std::fill(distance_.begin(), distance_.end(), inf);
    int64_t n_open = places_;
    for (int64_t j = 0; j < places_; ++j) open_[j] = static_cast<int32_t>(j);
    double reached = 0.0;
    int32_t at = line, end = kFree;
    while (end == kFree) {
      const double* costs = costs_.data() + at * places_;
      double nearest = inf;
      int64_t chosen = -1;
      for (int64_t k = 0; k < n_open; ++k) {
        const int32_t place = open_[k];
        // The path so far first: the two prices cancel against the cost, not against each other.
        const double through = reached + (costs[place] - line_price_[at] - place_price_[place]);
        if (through < distance_[place]) {
          distance_[place] = through;
          before_[place] = at;
        }
        const double d = distance_[place];
        // Of places at the same distance a free one ends the search at once.
        const bool nearer =
            d < nearest || (d == nearest && d < inf && line_at_[place] == kFree &&
                            line_at_[open_[chosen]] != kFree);
        if (nearer) {
          nearest = d;
          chosen = k;
        }
      }
      if (nearest == inf) return false;
      reached = nearest;
      const int32_t place = open_[chosen];
      std::swap(open_[chosen], open_[--n_open]);
      if (line_at_[place] == kFree) {
        end = place;
      } else {
        at = line_at_[place];
      }
    }
    // Prices of what the search has closed (they stand behind n_open), so that the matching's
    // reduced costs are 0 again.
    line_price_[line] += reached;
    for (int64_t k = n_open; k < places_; ++k) {
      const int32_t place = open_[k];
      if (place == end) continue;
      const double earlier = reached - distance_[place];
      place_price_[place] -= earlier;
      line_price_[line_at_[place]] += earlier;
    }
    for (int32_t place = end;;) {
      const int32_t from = before_[place];
      // Where `from` was until now is the place that the path came through.
      const int32_t next = place_of(from, line);
      line_at_[place] = from;
      if (from == line) return true;
      place = next;
    }
  }

  int32_t place_of(int32_t line, int32_t entering) const {
    if (line == entering) return kFree;
    return static_cast<int32_t>(std::find(line_at_.begin(), line_at_.end(), line) -
                                line_at_.begin());
  }

  int64_t stride_;
  bool wide_;  // no more rows than columns: lines are rows; otherwise lines are columns
  int64_t lines_, places_;
  std::vector<double> costs_;  // lines x places
  std::vector<double> line_price_, place_price_, distance_;
  std::vector<int32_t> before_, line_at_, open_, parts_;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
