// Assignments of the shorter side of a matrix to the longer one; layout: n, m; size: rows, columns.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "../../simd.h"
#include "../oracle.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Shortest augmenting paths with prices (Jonker & Volgenant). Lines of the shorter side first take
// their cheapest places; where two want the same, one waits. A waiting line enters the matching
// along the cheapest alternating path, which Dijkstra's search finds in reduced costs:
// O(short^2 long).
class AssignmentOracle {
 public:
  AssignmentOracle(const int64_t* layout, const int64_t* size)
      : stride_(layout[1]),
        wide_(size[0] <= size[1]),
        lines_(static_cast<int32_t>(wide_ ? size[0] : size[1])),
        places_(static_cast<int32_t>(wide_ ? size[1] : size[0])),
        width_((places_ + 7) / 8 * 8),
        costs_(lines_ * width_, kFar),
        line_price_(lines_),
        place_price_(width_),
        distance_(width_),
        barrier_(width_),
        open_(width_),
        before_(width_),
        taken_(width_),
        line_at_(width_),
        place_of_(lines_) {
    waiting_.reserve(2 * lines_);
    closed_.reserve(places_);
  }

  static int64_t most_parts(const int64_t* layout) { return std::min(layout[0], layout[1]); }

  int64_t argmax(const double* scores, int32_t* parts) {
    const StopCheck check;
    const int64_t down = wide_ ? stride_ : 1;
    for (int64_t i = 0; i < lines_; ++i) {
      check(width_);
      const double* const from = scores + i * down;
      double* const to = costs_.data() + i * width_;
      if (wide_) {
        for (int64_t j = 0; j < places_; ++j) to[j] = -from[j];
      } else {
        for (int64_t j = 0; j < places_; ++j) to[j] = -from[j * stride_];
      }
    }
    if (!take_cheapest(check)) return kNone;
    for (const int32_t line : waiting_) {
      if (!match(line, check)) return kNone;
    }
    for (int32_t line = 0; line < lines_; ++line) {
      const int64_t place = place_of_[line];
      parts[line] = static_cast<int32_t>(wide_ ? line * stride_ + place : place * stride_ + line);
    }
    if (!wide_) std::sort(parts, parts + lines_);
    return lines_;
  }

 private:
  static constexpr double kFar = std::numeric_limits<double>::infinity();
  static constexpr int32_t kFree = -1;

  static constexpr int kStep = kLanes<double>;

  // The first of the places that has this value, a free one if there is any.
  int32_t cheapest(const double* values, double value) const {
    int32_t first = kFree;
    for (int64_t j = 0; j < width_; j += kStep) {
      const Mask<double> equal = load(values + j) == splat(value);
      const uint32_t free = bits<double>(equal & (load(taken_.data() + j) == splat(0.0)));
      if (free != 0) return static_cast<int32_t>(j + __builtin_ctz(free));
      const uint32_t any = bits<double>(equal);
      if (first == kFree && any != 0) first = static_cast<int32_t>(j + __builtin_ctz(any));
    }
    return first;
  }

  void put(int32_t line, int32_t place) {
    line_at_[place] = line;
    taken_[place] = 1.0;
    place_of_[line] = place;
  }

  // Every line takes its cheapest place if that is free, and waits otherwise; false if a line has
  // no place. Any prices of places will do, as long as one that may stay free costs nothing: those
  // of the last question, if the next is a similar one, leave few lines to wait.
  bool take_cheapest(const StopCheck& check) {
    if (lines_ < places_) std::fill(place_price_.begin(), place_price_.end(), 0.0);
    std::fill(line_at_.begin(), line_at_.end(), kFree);
    std::fill(taken_.begin(), taken_.end(), 0.0);
    waiting_.clear();
    for (int32_t line = 0; line < lines_; ++line) {
      check(width_);
      const double* const costs = costs_.data() + line * width_;
      Vec<double> low = splat(kFar);
      for (int64_t j = 0; j < width_; j += kStep) {
        const Vec<double> cost = load(costs + j) - load(place_price_.data() + j);
        store(distance_.data() + j, cost);
        low = cost < low ? cost : low;
      }
      const double lowest = -max_lanes<double>(-low);
      if (lowest == kFar) return false;
      line_price_[line] = lowest;
      const int32_t best = cheapest(distance_.data(), lowest);
      if (line_at_[best] == kFree) {
        put(line, best);
      } else {
        waiting_.push_back(line);
      }
    }
    return true;
  }

  // Matches one more line; false if no free place is left at a finite distance.
  bool match(int32_t line, const StopCheck& check) {
    std::fill(distance_.begin(), distance_.end(), kFar);
    std::fill(barrier_.begin(), barrier_.end(), 0.0);
    closed_.clear();
    double reached = 0.0;
    int32_t at = line, end = kFree;
    while (true) {
      check(width_);
      const double* const costs = costs_.data() + at * width_;
      const double price = line_price_[at];
      Vec<double> low = splat(kFar);
      for (int64_t j = 0; j < width_; j += kStep) {
        const Vec<double> known = load(distance_.data() + j), barrier = load(barrier_.data() + j);
        // The path so far last: the two prices cancel against the cost, not against each other.
        const Vec<double> through =
            reached + ((load(costs + j) - price) - load(place_price_.data() + j));
        const Mask<double> nearer = through + barrier < known;
        const Vec<double> distance = nearer ? through : known;
        store(distance_.data() + j, distance);
        store(before_.data() + j, nearer ? splat<double>(at) : load(before_.data() + j));
        const Vec<double> open = distance + barrier;  // inf if closed
        store(open_.data() + j, open);
        low = open < low ? open : low;
      }
      const double nearest = -max_lanes<double>(-low);
      if (nearest == kFar) return false;
      const int32_t chosen = cheapest(open_.data(), nearest);
      reached = nearest;
      if (line_at_[chosen] == kFree) {
        end = chosen;
        break;
      }
      closed_.push_back(chosen);
      barrier_[chosen] = kFar;
      at = line_at_[chosen];
    }
    // Prices of what the search has closed, so that the matching's reduced costs are 0 again.
    line_price_[line] += reached;
    for (const int32_t place : closed_) {
      const double earlier = reached - distance_[place];
      place_price_[place] -= earlier;
      line_price_[line_at_[place]] += earlier;
    }
    for (int32_t place = end;;) {
      const int32_t from = static_cast<int32_t>(before_[place]);
      const int32_t next = place_of_[from];  // where it was until now: the path came through there
      put(from, place);
      if (from == line) return true;
      place = next;
    }
  }

  int64_t stride_;
  bool wide_;  // no more rows than columns: lines are rows; otherwise lines are columns
  int32_t lines_, places_;
  int64_t width_;              // the places in whole vectors; what is no place costs inf
  std::vector<double> costs_;  // lines x width
  std::vector<double> line_price_, place_price_, distance_, barrier_, open_, before_, taken_;
  std::vector<int32_t> line_at_, place_of_, waiting_, closed_;
};

template <>
struct OracleOf<FENCHEL_ASSIGNMENT> {
  using type = AssignmentOracle;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
