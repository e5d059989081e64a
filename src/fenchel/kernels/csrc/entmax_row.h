// Entmax of one long row, without a sort and almost without reading the row twice.
//
// Pass 1 keeps the lane-wise maxima of each block of vectors. They are entries of the row, so tau
// of them alone lies left of the row's tau and already tells most entries that they are out (and
// maxima of maxima tell the same of most maxima). Pass 2 visits only blocks that have an entry
// above it and copies those entries (value, index) to scratch, where Newton goes on. Pass 3 writes
// zeros and the few others.
#pragma once

#include "curve.h"
#include "steep.h"
#include "table.h"

namespace fenchel {
namespace FENCHEL_ISA {

constexpr int kBlockVectors = 8;

template <class T>
struct RowScratch {
  T* maxima;         // lane-wise maxima of each block
  T* candidates;     // u of entries that may be in the support
  T* values;         // their p
  T* slopes;         // and slopes
  int32_t* indices;  // where they stand in the row
  double* doubles;   // for a steep row

  static size_t padded(int64_t n) { return n + 4 * kLanes<T>; }
  static size_t bytes(int64_t n) {
    return padded(n) * (4 * sizeof(T) + sizeof(int32_t)) + steep_scratch_bytes(n);
  }
  RowScratch(void* memory, int64_t n) {
    doubles = static_cast<double*>(memory);
    maxima = reinterpret_cast<T*>(doubles + 2 * n);
    candidates = maxima + padded(n);
    values = candidates + padded(n);
    slopes = values + padded(n);
    indices = reinterpret_cast<int32_t*>(slopes + padded(n));
  }
};

// Sums of p and of slopes over packed entries. With `values` and `slopes`, keeps both. u is padded:
// whole vectors are read and written.
template <class T, class Curve>
inline void sums(const Curve& curve, const T* u, int64_t count, T tau, double* sum,
                 double* slope_sum, T* values, T* slopes) {
  constexpr int lanes = kLanes<T>;
  const Vec<T> shift = splat(tau);
  Total<T> total;
  Vec<T> parts[4] = {}, slope_parts[4] = {};
  const auto add = [&](Vec<T> w, int64_t at, int k) {
    Vec<T> slope;
    const Vec<T> value = curve(w, &slope);
    if constexpr (!Curve::kCheap) {
      if (values != nullptr) {
        store(values + at, value);
        store(slopes + at, slope);
      }
    }
    parts[k] += value;
    slope_parts[k] += slope;
  };
  for (int64_t j = 0; j < count;) {
    const int64_t end = std::min<int64_t>(count, j + 4 * Total<T>::kBlock * lanes);
    for (; j + 4 * lanes <= end; j += 4 * lanes) {
      add(load(u + j) - shift, j, 0);
      add(load(u + j + lanes) - shift, j + lanes, 1);
      add(load(u + j + 2 * lanes) - shift, j + 2 * lanes, 2);
      add(load(u + j + 3 * lanes) - shift, j + 3 * lanes, 3);
    }
    for (; j < end; j += lanes) {
      const int part = static_cast<int>(std::min<int64_t>(lanes, end - j));
      add(load_part(u + j, part, -kInf<T>) - shift, j, 0);
    }
    total.add((parts[0] + parts[1]) + (parts[2] + parts[3]));
    for (Vec<T>& part : parts) part = splat(T(0));
  }
  *sum = total.over_lanes();
  // A slope need not be right to the last digit.
  *slope_sum =
      sum_lanes_in_double<T>((slope_parts[0] + slope_parts[1]) + (slope_parts[2] + slope_parts[3]));
}

// Newton from tau, which is left of the root, over packed entries; at most max_steps. Starts at
// `guess` if that is larger: from right of the root, Newton's first step leads left of it, and tau
// stays the lower end. Returns the step not taken.
template <class T, class Curve>
inline T climb(const Curve& curve, const T* u, int64_t count, T* tau, int max_steps,
               T* values = nullptr, T* slopes = nullptr, T guess = -kInf<T>) {
  const T lowest = *tau;
  bool guessed = guess > lowest;
  if (guessed) *tau = guess;
  for (int step = 0;; ++step) {
    double sum, slope;
    sums<T>(curve, u, count, *tau, &sum, &slope, values, slopes);
    const double rest = curve.step(sum, slope);
    const T next = static_cast<T>(*tau + rest);
    const bool done = curve.done(splat(static_cast<T>(sum)), splat(static_cast<T>(rest)))[0] != 0;
    if (guessed && sum < 1) {
      *tau = std::max(next, lowest);
    } else if (done || !(next > *tau) || step == max_steps) {
      return static_cast<T>(rest);
    } else {
      *tau = next;
    }
    guessed = false;
  }
}

// Lane-wise maxima of each block of x into `maxima` (count returned); the row's maximum and sum,
// and whether it holds a NaN.
template <class T>
inline int64_t block_maxima(const T* x, int64_t n, T* maxima, T* top, double* total,
                            bool* has_nan) {
  constexpr int lanes = kLanes<T>;
  constexpr int64_t block = kBlockVectors * lanes;
  Vec<T> best = splat(-kInf<T>);
  Mask<T> nan = splat(T(0)) != splat(T(0));
  int64_t count = 0;
  Total<T> sums;
  for (int64_t j = 0; j < n; j += block, count += lanes) {
    Vec<T> here = splat(-kInf<T>), sum = splat(T(0));
    if (j + block <= n) {
      for (int v = 0; v < kBlockVectors; ++v) {
        const Vec<T> value = load(x + j + v * lanes);
        nan |= value != value;
        sum += value;
        here = larger<T>(value, here);
      }
    } else {
      for (int64_t i = j; i < n; i += lanes) {
        const int part = static_cast<int>(std::min<int64_t>(lanes, n - i));
        const Vec<T> value = load_part(x + i, part, -kInf<T>);
        nan |= value != value;
        sum += load_part(x + i, part, T(0));
        here = larger<T>(value, here);
      }
    }
    sums.add(sum);
    store(maxima + count, here);
    best = larger<T>(here, best);
  }
  *top = max_lanes<T>(best);
  *total = sums.over_lanes();
  *has_nan = any<T>(nan);
  return count;
}

template <class T>
inline void fill_row(T* p, int64_t n, T value) {
  for (int64_t j = 0; j < n; ++j) p[j] = value;
}

// A tau for alpha > 1.5 from those at 1.5 and at 2, which cost far less to find: log p of the
// largest entry is nearly linear in alpha. `mean` is that of all n entries.
template <class T>
inline T guess_between(double a, const T* u, int64_t count, double n, double mean) {
  T square = static_cast<T>(std::max(-2.0, mean - 2 / std::sqrt(n)));
  T linear = static_cast<T>(std::max(-1.0, mean - 1 / n));
  climb<T>(Square<T>{}, u, count, &square, 4);
  climb<T>(Linear<T>{}, u, count, &linear, 6);
  const double log_square = 2 * std::log(-0.5 * static_cast<double>(square));
  const double log_linear = std::log(-static_cast<double>(linear));
  const double log_p = log_square + (a - 0.5) / 0.5 * (log_linear - log_square);
  return static_cast<T>(-std::exp(a * std::min(log_p, 0.0)) / a);
}

// Where the probabilities of a row go: all n of them ...
template <class T>
struct DenseRow {
  T* p;
  int64_t n;

  void begin(bool all) const {
    if (!all) std::memset(p, 0, n * sizeof(T));
  }
  // The first `part` lanes of `value`, for candidates c, c + 1, ...; without indices their places.
  void put(int64_t c, Vec<T> value, int part, const int32_t* indices) const {
    if (indices != nullptr) {
      for (int lane = 0; lane < part; ++lane) p[indices[c + lane]] = value[lane];
    } else if (part == kLanes<T>) {
      store(p + c, value);
    } else {
      store_part(p + c, value, part);
    }
  }
  // A path that writes whole rows writes here.
  T* whole(const RowScratch<T>&) const { return p; }
  void finish_whole() const {}
};

// ... or the nonzeros with their places, into the row's scratch (over candidates already read).
template <class T>
struct ListedRow {
  T* values;
  int32_t* indices;
  T* dense;
  int64_t n, count = 0;

  ListedRow(const RowScratch<T>& scratch, int64_t n)
      : values(scratch.values), indices(scratch.indices), dense(scratch.candidates), n(n) {}
  void begin(bool) const {}
  void put(int64_t c, Vec<T> value, int part, const int32_t* from) {
    for (int lane = 0; lane < part; ++lane) {
      const int32_t place = from != nullptr ? from[c + lane] : static_cast<int32_t>(c + lane);
      add(place, value[lane]);
    }
  }
  void add(int32_t place, T value) {
    values[count] = value;
    indices[count] = place;
    count += value != 0;
  }
  T* whole(const RowScratch<T>&) const { return dense; }
  void finish_whole() { list(dense); }
  void list(const T* p) {
    for (int64_t j = 0; j < n; ++j) add(static_cast<int32_t>(j), p[j]);
  }
};

// `tau` is left of the root; entries with u <= tau - reach have p = 0. `mean` is that of u.
template <class T, class Curve, class Out>
inline void solve_row(const Curve& curve, T tau, T reach, const T* x, int64_t n, T top, double mean,
                      int64_t maxima_count, Out& out, const RowScratch<T>& scratch) {
  constexpr int lanes = kLanes<T>;
  constexpr int64_t block = kBlockVectors * lanes;
  T* maxima = scratch.maxima;
  for (int64_t i = 0; i < maxima_count; ++i) maxima[i] -= top;
  int64_t coarse_count = 0;
  for (int64_t i = 0; i < maxima_count; i += block, coarse_count += lanes) {
    Vec<T> best = load(maxima + i);
    const int64_t end = std::min<int64_t>(maxima_count, i + block);
    for (int64_t k = i + lanes; k < end; k += lanes) best = larger<T>(load(maxima + k), best);
    store(scratch.values + coarse_count, best);
  }
  climb<T>(curve, scratch.values, coarse_count, &tau, 8);
  int64_t alive = 0;
  for (int64_t i = 0; i < maxima_count; i += lanes) {
    const Vec<T> u = load(maxima + i);
    alive +=
        append(scratch.candidates + alive, scratch.indices + alive, u, bits<T>(u > tau - reach), 0);
  }
  if (alive < maxima_count / 2) climb<T>(curve, scratch.candidates, alive, &tau, 8);
  const T floor = tau - reach;
  // Of a block's column with its maximum alive, about a third of the entries are.
  const bool dense = alive > maxima_count / 2;
  int64_t count = 0;
  if (dense) {
    for (int64_t j = 0; j < n; ++j) scratch.candidates[j] = x[j] - top;
    count = n;
  } else {
    for (int64_t j = 0, b = 0; j < n; j += block, b += lanes) {
      if (!any<T>(load(maxima + b) > floor)) continue;
      const int64_t end = std::min<int64_t>(n, j + block);
      for (int64_t i = j; i < end; i += lanes) {
        const int part = static_cast<int>(std::min<int64_t>(lanes, end - i));
        const Vec<T> u = (part == lanes ? load(x + i) : load_part(x + i, part, -kInf<T>)) - top;
        count += append(scratch.candidates + count, scratch.indices + count, u, bits<T>(u > floor),
                        static_cast<int32_t>(i));
      }
    }
  }
  T guess = -kInf<T>;
  if constexpr (!Curve::kCheap) {
    const double a = curve.scalar_a, size = static_cast<double>(n);
    if (a > 0.5 && count > 4096) guess = guess_between<T>(a, scratch.candidates, count, size, mean);
  }
  const T rest = climb<T>(curve, scratch.candidates, count, &tau, kMaxSteps, scratch.values,
                          scratch.slopes, guess);
  out.begin(dense);
  for (int64_t c = 0; c < count; c += lanes) {
    Vec<T> value;
    if constexpr (Curve::kCheap) {
      value = curve.value((load(scratch.candidates + c) - tau) - rest);
    } else {
      value = curve.settle(load(scratch.values + c), load(scratch.slopes + c), splat(rest));
    }
    const int part = static_cast<int>(std::min<int64_t>(lanes, count - c));
    out.put(c, value, part, dense ? nullptr : scratch.indices);
  }
}

template <class T>
inline void softmax_row(const T* x, int64_t n, T top, T* p) {
  constexpr int lanes = kLanes<T>;
  Total<T> sum;
  for (int64_t j = 0; j < n;) {
    Vec<T> block = splat(T(0));
    for (const int64_t end = std::min<int64_t>(n, j + Total<T>::kBlock * lanes); j < end;
         j += lanes) {
      const int part = static_cast<int>(std::min<int64_t>(lanes, end - j));
      const Vec<T> e = exp((part == lanes ? load(x + j) : load_part(x + j, part, -kInf<T>)) - top);
      if (part == lanes) {
        store(p + j, e);
      } else {
        store_part(p + j, e, part);
      }
      block += e;
    }
    sum.add(block);
  }
  const double total = sum.over_lanes();
  const T inverse = static_cast<T>(1 / total);
  for (int64_t i = 0; i < n; ++i) p[i] *= inverse;
}

template <class T>
inline void argmax_row(const T* x, int64_t n, T top, T* p) {
  int64_t ties = 0;
  for (int64_t j = 0; j < n; ++j) ties += x[j] == top;
  const T share = T(1) / static_cast<T>(ties);
  for (int64_t j = 0; j < n; ++j) p[j] = x[j] == top ? share : T(0);
}

// x contiguous; `out` is a DenseRow or a ListedRow of the same scratch.
template <class T, class Out>
inline void entmax_row(const T* x, int64_t n, double alpha, Out& out,
                       const RowScratch<T>& scratch) {
  T top;
  double total;
  bool has_nan;
  const int64_t count = block_maxima(x, n, scratch.maxima, &top, &total, &has_nan);
  const AlphaKind kind = kind_of(alpha);
  const auto whole = [&](const auto& write) {
    write(out.whole(scratch));
    out.finish_whole();
  };
  if (has_nan || top == kInf<T> || kind == AlphaKind::kInvalid) {
    return whole([&](T* p) { fill_row(p, n, kNaN<T>); });
  }
  if (top == -kInf<T>) return whole([&](T* p) { fill_row(p, n, T(0)); });
  // A first tau: that of a one-hot row, or what it would be were all entries equal to their mean
  // (the sum would then be no larger, by convexity), less what rounding may have added.
  const double size = static_cast<double>(n), a = alpha - 1, base = base_of(a);
  const double mean = total / size - static_cast<double>(top);
  const double grain = 64 * static_cast<double>(std::numeric_limits<T>::epsilon());
  const double equal = mean + (base - 1 - std::expm1(-a * std::log(size))) / a;
  const double first = std::max((base - 1) / a, equal - grain * std::abs(equal));
  const auto solve = [&](const auto& curve) {
    // A little further than base/a, which is rounded: an entry too many costs nothing.
    const T reach = static_cast<T>(base / a) * (1 + 4 * std::numeric_limits<T>::epsilon());
    solve_row<T>(curve, static_cast<T>(first), reach, x, n, top, mean, count, out, scratch);
  };
  switch (kind) {
    case AlphaKind::kSoftmax:
      return whole([&](T* p) { softmax_row(x, n, top, p); });
    case AlphaKind::kSquare:
      return solve(Square<T>{});
    case AlphaKind::kLinear:
      return solve(Linear<T>{});
    case AlphaKind::kWhole3:
      return solve(Whole<T, 3>{});
    case AlphaKind::kWhole4:
      return solve(Whole<T, 4>{});
    case AlphaKind::kWhole5:
      return solve(Whole<T, 5>{});
    case AlphaKind::kWhole6:
      return solve(Whole<T, 6>{});
    case AlphaKind::kWhole7:
      return solve(Whole<T, 7>{});
    case AlphaKind::kWhole8:
      return solve(Whole<T, 8>{});
    case AlphaKind::kGeneral:
      return solve(General<T>(splat(static_cast<T>(a)), static_cast<T>(std::log(size))));
    case AlphaKind::kSmall:
      return solve(Small<T>(splat(static_cast<T>(a))));
    case AlphaKind::kHeavy:  // no entry is out of reach
      return solve_row<T>(Heavy<T>(splat(static_cast<T>(a))), static_cast<T>(first), kInf<T>, x, n,
                          top, mean, count, out, scratch);
    case AlphaKind::kSteep:
      return whole([&](T* p) {
        steep_row(x, 1, n, static_cast<double>(top), alpha, p, 1, scratch.doubles);
      });
    default:
      return whole([&](T* p) { argmax_row(x, n, top, p); });
  }
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
