// Entmax of short rows: as many rows as a vector has lanes, one row a lane.
//
// The group is transposed into scratch, so sums over a row are plain vertical additions, with no
// horizontal step and no tail. A lane never sees its neighbours: a row that is done stands still
// while the others go on, so its result is the same in any batch.
#pragma once

#include <algorithm>

#include "curve.h"
#include "steep.h"
#include "table.h"

namespace fenchel {
namespace FENCHEL_ISA {

constexpr int64_t kShortRow = 160;

// Scratch of a group: u, p, and p and slopes while solving, transposed; then doubles for a steep
// row.
template <class T>
constexpr size_t lane_scratch_bytes(int64_t n) {
  const int64_t vectors = 4 * (n + kLanes<T>);
  return vectors * kVectorBytes + steep_scratch_bytes(n);
}

// Rows `row` to `row + count` into lanes; lanes beyond repeat the first row. Writes up to
// kLanes - 1 vectors past u[n].
template <class T>
inline void transpose_in(const T* x, const Layout& at, int64_t row, int count, Vec<T>* u) {
  constexpr int lanes = kLanes<T>;
  const T* from[lanes];
  for (int lane = 0; lane < lanes; ++lane) {
    from[lane] = x + at.start(row + (lane < count ? lane : 0));
  }
  if (at.inner == 1) {
    for (int64_t j = 0; j < at.n; j += lanes) {
      const int part = static_cast<int>(std::min<int64_t>(lanes, at.n - j));
      for (int lane = 0; lane < lanes; ++lane) {
        u[j + lane] = part == lanes ? load(from[lane] + j) : load_part(from[lane] + j, part, T(0));
      }
      transpose<T>(u + j);
    }
    return;
  }
  for (int64_t j = 0; j < at.n; ++j) {
    for (int lane = 0; lane < lanes; ++lane) u[j][lane] = from[lane][j * at.inner];
  }
}

// The way back; p is overwritten, up to kLanes - 1 vectors past p[n].
template <class T>
inline void transpose_out(Vec<T>* p, const Layout& at, int64_t row, int count, T* out) {
  constexpr int lanes = kLanes<T>;
  T* to[lanes];
  for (int lane = 0; lane < count; ++lane) to[lane] = out + at.start(row + lane);
  if (at.inner == 1) {
    for (int64_t j = 0; j < at.n; j += lanes) {
      const int part = static_cast<int>(std::min<int64_t>(lanes, at.n - j));
      transpose<T>(p + j);
      for (int lane = 0; lane < count; ++lane) {
        if (part == lanes) {
          store(to[lane] + j, p[j + lane]);
        } else {
          store_part(to[lane] + j, p[j + lane], part);
        }
      }
    }
    return;
  }
  for (int64_t j = 0; j < at.n; ++j) {
    for (int lane = 0; lane < count; ++lane) to[lane][j * at.inner] = p[j][lane];
  }
}

// tau of a cheap curve after a few of Newton's steps from the left.
template <class T, class Curve>
inline Vec<T> climb_lanes(const Curve& curve, const Vec<T>* u, int64_t n, Vec<T> tau, int steps) {
  for (int step = 0; step < steps; ++step) {
    Vec<T> sum = splat(T(0)), slopes = sum, sum2 = sum, slopes2 = sum, slope, slope2;
    int64_t j = 0;
    for (; j + 2 <= n; j += 2) {
      sum += curve(u[j] - tau, &slope);
      sum2 += curve(u[j + 1] - tau, &slope2);
      slopes += slope;
      slopes2 += slope2;
    }
    if (j < n) {
      sum += curve(u[j] - tau, &slope);
      slopes += slope;
    }
    sum += sum2;
    slopes += slopes2;
    tau = sum > T(1) ? tau + curve.step(sum, slopes) : tau;
  }
  return tau;
}

// p of the lanes in `chosen`, for one curve, from a `tau` left of the root. A curve that is not
// cheap keeps p and its slopes from the last step in `kept` and corrects them, instead of being
// evaluated once more.
template <class T, class Curve>
inline void solve_lanes(const Curve& curve, const Vec<T>* u, int64_t n, Vec<T> tau, Mask<T> chosen,
                        Vec<T>* p, Vec<T>* kept, Vec<T> guess = splat(-kInf<T>)) {
  Vec<T>* slopes = kept + n;
  Vec<T> rest = splat(T(0));
  const Vec<T> lowest = tau;
  tau = larger<T>(guess, tau);
  for (int step = 0; step < kMaxSteps; ++step) {
    Total<T> sums;
    Vec<T> slope_parts[4] = {}, parts[4] = {};
    const auto add = [&](int64_t j, int k) {
      Vec<T> slope;
      const Vec<T> value = curve(u[j] - tau, &slope);
      if constexpr (!Curve::kCheap) {
        kept[j] = value;
        slopes[j] = slope;
      }
      parts[k] += value;
      slope_parts[k] += slope;
    };
    for (int64_t j = 0; j < n;) {
      const int64_t end = std::min<int64_t>(n, j + 4 * Total<T>::kBlock);
      for (; j + 4 <= end; j += 4) {
        add(j, 0);
        add(j + 1, 1);
        add(j + 2, 2);
        add(j + 3, 3);
      }
      for (; j < end; ++j) add(j, 0);
      sums.add((parts[0] + parts[1]) + (parts[2] + parts[3]));
      for (Vec<T>& part : parts) part = splat(T(0));
    }
    const Vec<T> slope_sum = (slope_parts[0] + slope_parts[1]) + (slope_parts[2] + slope_parts[3]);
    const Vec<T> sum = sums.value();
    rest = curve.step(sum, slope_sum);
    // From a guess right of the root the first step leads left; from there they only climb.
    const Vec<T> next = larger<T>(tau + rest, lowest);
    const Mask<T> ahead = step == 0 ? next != tau : next > tau;
    const Mask<T> moves = chosen & ~curve.done(sum, rest) & ahead;
    if (!any<T>(moves)) break;
    tau = moves ? next : tau;
  }
  for (int64_t j = 0; j < n; ++j) {
    if constexpr (Curve::kCheap) {
      p[j] = chosen ? curve.value((u[j] - tau) - rest) : p[j];
    } else {
      p[j] = chosen ? curve.settle(kept[j], slopes[j], rest) : p[j];
    }
  }
}

template <class T>
inline void softmax_lanes(const Vec<T>* u, int64_t n, Mask<T> chosen, Vec<T>* p) {
  Total<T> total;
  for (int64_t j = 0; j < n;) {
    Vec<T> part = splat(T(0));
    for (const int64_t end = std::min<int64_t>(n, j + Total<T>::kBlock); j < end; ++j) {
      part += exp(u[j]);
    }
    total.add(part);
  }
  const Vec<T> sum = total.value();
  for (int64_t j = 0; j < n; ++j) p[j] = chosen ? exp(u[j]) / sum : p[j];
}

template <class T>
inline void argmax_lanes(const Vec<T>* u, int64_t n, Mask<T> chosen, Vec<T>* p) {
  Vec<T> ties = splat(T(0));
  for (int64_t j = 0; j < n; ++j) ties += u[j] == T(0) ? splat(T(1)) : splat(T(0));
  for (int64_t j = 0; j < n; ++j) {
    p[j] = chosen ? (u[j] == T(0) ? T(1) / ties : splat(T(0))) : p[j];
  }
}

// What all groups of one call share: numbers that depend on n alone.
template <class T>
struct ShortRows {
  int64_t n;
  T size, log_size;
  Vec<T> lowest_square = splat(T(-2)), equal_square, lowest_linear = splat(T(-1)), equal_linear;

  explicit ShortRows(int64_t n)
      : n(n), size(static_cast<T>(n)), log_size(static_cast<T>(std::log(static_cast<double>(n)))) {
    equal_square = splat(static_cast<T>(-2 / std::sqrt(static_cast<double>(n))));
    equal_linear = splat(static_cast<T>(-1 / static_cast<double>(n)));
  }
};

template <class T>
inline void entmax_group(const T* x, T* out, const Layout& at, const ShortRows<T>& shared,
                         int64_t row, int count, void* memory) {
  constexpr int lanes = kLanes<T>;
  const int64_t n = at.n;
  Vec<T>* u = static_cast<Vec<T>*>(memory);
  Vec<T>* p = u + n + lanes;
  Vec<T>* kept = p + n + lanes;
  double* doubles = reinterpret_cast<double*>(kept + 2 * n);
  transpose_in(x, at, row, count, u);

  // Two chains each: one alone would wait for its own additions.
  Vec<T> top = splat(-kInf<T>), top2 = top;
  Mask<T> bad = splat(T(0)) != splat(T(0)), bad2 = bad;
  for (int64_t j = 0; j + 1 < n; j += 2) {
    top = larger<T>(u[j], top);
    top2 = larger<T>(u[j + 1], top2);
    bad |= u[j] != u[j];
    bad2 |= u[j + 1] != u[j + 1];
  }
  bad |= bad2 | (u[n - 1] != u[n - 1]);
  top = larger<T>(larger<T>(u[n - 1], top), top2);
  bad |= top == kInf<T>;
  const Mask<T> empty = top == -kInf<T>;
  const Vec<T> shift = (bad | empty) ? splat(T(0)) : top;
  Vec<T> total = splat(T(0)), total2 = total;
  for (int64_t j = 0; j + 1 < n; j += 2) {
    total += u[j] -= shift;
    total2 += u[j + 1] -= shift;
  }
  if (n % 2 == 1) total += u[n - 1] -= shift;
  total += total2;

  Vec<T> a;
  Mask<T> kinds;
  unsigned present = 0;
  if (at.parameter_stride == 0) {
    const AlphaKind kind = kind_of(at.parameter[0]);
    kinds = Mask<T>{} + static_cast<int>(kind);
    a = splat(static_cast<T>(at.parameter[0] - 1));
    present = 1u << static_cast<int>(kind);
  } else {
    for (int lane = 0; lane < lanes; ++lane) {
      const double alpha = at.parameter_of(row + (lane < count ? lane : 0));
      const int kind = static_cast<int>(kind_of(alpha));
      kinds[lane] = kind;
      a[lane] = static_cast<T>(alpha - 1);
      present |= 1u << kind;
    }
  }
  const auto has = [&](AlphaKind kind) { return (present >> static_cast<int>(kind) & 1u) != 0; };
  const auto of_kind = [&](AlphaKind kind) {
    return (kinds == static_cast<int>(kind)) & ~bad & ~empty;
  };
  // A first tau: were all entries equal to their mean, the sum would be no larger (convexity).
  // `lowest` is the tau of a one-hot row, `equal` that of n equal entries.
  const auto first_tau = [&](Vec<T> lowest, Vec<T> equal) {
    return larger<T>(total / shared.size + equal, lowest);
  };

  if (has(AlphaKind::kSoftmax)) softmax_lanes<T>(u, n, of_kind(AlphaKind::kSoftmax), p);
  if (has(AlphaKind::kSquare)) {
    const Vec<T> first = first_tau(shared.lowest_square, shared.equal_square);
    solve_lanes<T>(Square<T>{}, u, n, first, of_kind(AlphaKind::kSquare), p, kept);
  }
  if (has(AlphaKind::kLinear)) {
    const Vec<T> first = first_tau(shared.lowest_linear, shared.equal_linear);
    solve_lanes<T>(Linear<T>{}, u, n, first, of_kind(AlphaKind::kLinear), p, kept);
  }
  const auto solve_varied = [&](const auto& curve, AlphaKind kind, Vec<T> exponent,
                                Vec<T> guess = splat(-kInf<T>)) {
    const Mask<T> small = exponent < T(0.5);
    const Vec<T> shrunk = exp(-exponent * shared.log_size);  // n^-a
    const Vec<T> lowest = small ? splat(T(0)) : T(-1) / exponent;
    const Vec<T> equal = (small ? T(1) - shrunk : -shrunk) / exponent;
    solve_lanes<T>(curve, u, n, first_tau(lowest, equal), of_kind(kind), p, kept, guess);
  };
  const auto solve_whole = [&](const auto& curve, AlphaKind kind, int power) {
    if (has(kind)) solve_varied(curve, kind, splat(T(1) / static_cast<T>(power)));
  };
  solve_whole(Whole<T, 3>{}, AlphaKind::kWhole3, 3);
  solve_whole(Whole<T, 4>{}, AlphaKind::kWhole4, 4);
  solve_whole(Whole<T, 5>{}, AlphaKind::kWhole5, 5);
  solve_whole(Whole<T, 6>{}, AlphaKind::kWhole6, 6);
  solve_whole(Whole<T, 7>{}, AlphaKind::kWhole7, 7);
  solve_whole(Whole<T, 8>{}, AlphaKind::kWhole8, 8);
  if (has(AlphaKind::kGeneral)) {
    const Vec<T> exponent = of_kind(AlphaKind::kGeneral) ? a : splat(T(0.5));
    const General<T> curve(exponent, shared.log_size);
    // The logarithm of the largest p is nearly linear in alpha, and cheap to find at 1.5 and at 2.
    const Vec<T> square =
        climb_lanes<T>(Square<T>{}, u, n, first_tau(shared.lowest_square, shared.equal_square), 2);
    const Vec<T> linear =
        climb_lanes<T>(Linear<T>{}, u, n, first_tau(shared.lowest_linear, shared.equal_linear), 2);
    const Vec<T> log_square = T(2) * log(T(-0.5) * square), log_linear = log(-linear);
    const Vec<T> log_p = log_square + (T(2) * exponent - T(1)) * (log_linear - log_square);
    const Vec<T> guess = curve.tau_of(log_p < T(0) ? log_p : splat(T(0)));
    solve_varied(curve, AlphaKind::kGeneral, exponent, guess);
  }
  if (has(AlphaKind::kSmall)) {
    const Vec<T> exponent = of_kind(AlphaKind::kSmall) ? a : splat(T(0.01));
    solve_varied(Small<T>(exponent), AlphaKind::kSmall, exponent);
  }
  if (has(AlphaKind::kHeavy)) {
    const Vec<T> exponent = of_kind(AlphaKind::kHeavy) ? a : splat(T(-0.5));
    const double log_n = std::log(static_cast<double>(n));
    Vec<T> equal = splat(T(0));
    if (at.parameter_stride == 0) {
      equal = splat(static_cast<T>(heavy_equal(at.parameter[0] - 1, log_n)));
    } else {
      for (int lane = 0; lane < lanes; ++lane) {
        const double alpha = at.parameter_of(row + (lane < count ? lane : 0));
        const bool heavy = kinds[lane] == static_cast<int>(AlphaKind::kHeavy);
        if (heavy) equal[lane] = static_cast<T>(heavy_equal(alpha - 1, log_n));
      }
    }
    const Vec<T> first = first_tau(splat(T(0)), equal);
    solve_lanes<T>(Heavy<T>(exponent), u, n, first, of_kind(AlphaKind::kHeavy), p, kept);
  }
  if (has(AlphaKind::kArgmax)) argmax_lanes<T>(u, n, of_kind(AlphaKind::kArgmax), p);
  if (has(AlphaKind::kSteep)) {
    T* flat_p = reinterpret_cast<T*>(p);
    const Mask<T> chosen = of_kind(AlphaKind::kSteep);
    for (int lane = 0; lane < count; ++lane) {
      if (chosen[lane]) {
        steep_row(x + at.start(row + lane), at.inner, n, static_cast<double>(top[lane]),
                  at.parameter_of(row + lane), flat_p + lane, lanes, doubles);
      }
    }
  }
  const Mask<T> invalid = bad | (kinds == static_cast<int>(AlphaKind::kInvalid));
  if (any<T>(invalid | empty)) {
    const Vec<T> fill = invalid ? splat(kNaN<T>) : splat(T(0));
    for (int64_t j = 0; j < n; ++j) p[j] = (invalid | empty) ? fill : p[j];
  }
  transpose_out(p, at, row, count, out);
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
