// Entmax of one long row, without a sort and almost without reading the row twice.
//
// Pass 1 keeps the lane-wise maxima of each block of vectors. They are entries of the row, so tau
// of them alone lies left of the row's tau and already tells most entries that they are out. Pass
// 2 visits only blocks that have an entry above it and copies those entries (value, index) to
// scratch, where Newton goes on. Pass 3 writes zeros and the few others.
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
  int32_t* indices;  // where they stand in the row
  double* doubles;   // for a steep row

  static size_t bytes(int64_t n) {
    const size_t padded = n + 4 * kLanes<T>;
    return padded * (2 * sizeof(T) + sizeof(int32_t)) + steep_scratch_bytes(n) + 256;
  }
  RowScratch(void* memory, int64_t n) {
    const size_t padded = n + 4 * kLanes<T>;
    doubles = static_cast<double*>(memory);
    maxima = reinterpret_cast<T*>(doubles + 2 * n);
    candidates = maxima + padded;
    indices = reinterpret_cast<int32_t*>(candidates + padded);
  }
};

// Sums of p and of slopes over packed entries, blockwise in T and across blocks in double.
template <class T, class Curve>
inline void sums(const Curve& curve, const T* u, int64_t count, T tau, double* sum,
                 double* slopes) {
  constexpr int lanes = kLanes<T>;
  const Vec<T> shift = splat(tau);
  double total = 0, total_slope = 0;
  int64_t j = 0;
  while (j < count) {
    const int64_t end = std::min<int64_t>(count, j + 64 * lanes);
    Vec<T> s0 = splat(T(0)), d0 = s0, s1 = s0, d1 = s0, slope;
    for (; j + 2 * lanes <= end; j += 2 * lanes) {
      s0 += curve(load(u + j) - shift, &slope);
      d0 += slope;
      s1 += curve(load(u + j + lanes) - shift, &slope);
      d1 += slope;
    }
    for (; j < end; j += lanes) {
      const int part = static_cast<int>(std::min<int64_t>(lanes, end - j));
      s0 += curve(load_part(u + j, part, -kInf<T>) - shift, &slope);
      d0 += slope;
    }
    total += static_cast<double>(sum_lanes<T>(s0 + s1));
    total_slope += static_cast<double>(sum_lanes<T>(d0 + d1));
  }
  *sum = total;
  *slopes = total_slope;
}

// Newton from tau over packed entries; at most max_steps. Returns the step not taken.
template <class T, class Curve>
inline T climb(const Curve& curve, const T* u, int64_t count, T* tau, int max_steps) {
  double sum, slopes;
  for (int step = 0;; ++step) {
    sums<T>(curve, u, count, *tau, &sum, &slopes);
    const double rest = curve.step(sum, slopes);
    const T next = static_cast<T>(*tau + rest);
    if (sum <= 1 + static_cast<double>(Curve::kTolerance) || !(next > *tau) || step == max_steps) {
      return static_cast<T>(rest);
    }
    *tau = next;
  }
}

// Lane-wise maxima of each block of x into `maxima` (count returned); the row's maximum and whether
// it holds a NaN.
template <class T>
inline int64_t block_maxima(const T* x, int64_t n, T* maxima, T* top, bool* has_nan) {
  constexpr int lanes = kLanes<T>;
  constexpr int64_t block = kBlockVectors * lanes;
  Vec<T> best = splat(-kInf<T>);
  Mask<T> nan = splat(T(0)) != splat(T(0));
  int64_t count = 0;
  for (int64_t j = 0; j < n; j += block, count += lanes) {
    Vec<T> here = splat(-kInf<T>);
    if (j + block <= n) {
      for (int v = 0; v < kBlockVectors; ++v) {
        const Vec<T> value = load(x + j + v * lanes);
        nan |= value != value;
        here = larger<T>(value, here);
      }
    } else {
      for (int64_t i = j; i < n; i += lanes) {
        const Vec<T> value =
            load_part(x + i, static_cast<int>(std::min<int64_t>(lanes, n - i)), -kInf<T>);
        nan |= value != value;
        here = larger<T>(value, here);
      }
    }
    store(maxima + count, here);
    best = larger<T>(here, best);
  }
  *top = max_lanes<T>(best);
  *has_nan = any<T>(nan);
  return count;
}

template <class T>
inline void fill_row(T* p, int64_t n, T value) {
  for (int64_t j = 0; j < n; ++j) p[j] = value;
}

template <class T, class Curve>
inline void write_dense(const Curve& curve, const T* x, int64_t n, T top, T tau, T rest, T* p) {
  constexpr int lanes = kLanes<T>;
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes) store(p + j, curve.value(((load(x + j) - top) - tau) - rest));
  if (j < n) {
    const int part = static_cast<int>(n - j);
    store_part(p + j, curve.value(((load_part(x + j, part, -kInf<T>) - top) - tau) - rest), part);
  }
}

// `tau` is that of a one-hot row; entries with u <= tau - reach have p = 0.
template <class T, class Curve>
inline void solve_row(const Curve& curve, T tau, T reach, const T* x, int64_t n, T top, T* maxima,
                      int64_t maxima_count, T* p, const RowScratch<T>& scratch) {
  constexpr int lanes = kLanes<T>;
  constexpr int64_t block = kBlockVectors * lanes;
  for (int64_t i = 0; i < maxima_count; ++i) maxima[i] -= top;
  climb<T>(curve, maxima, maxima_count, &tau, 8);

  const T floor = tau - reach;
  int64_t count = 0;
  for (int64_t j = 0, b = 0; j < n; j += block, b += lanes) {
    if (!any<T>(load(maxima + b) > floor)) continue;
    const int64_t end = std::min<int64_t>(n, j + block);
    for (int64_t i = j; i < end; i += lanes) {
      const int part = static_cast<int>(std::min<int64_t>(lanes, end - i));
      const Vec<T> u = (part == lanes ? load(x + i) : load_part(x + i, part, -kInf<T>)) - top;
      uint32_t selected = bits<T>(u > floor);
      append(scratch.candidates + count, u, selected);
      while (selected != 0) {
        scratch.indices[count++] = static_cast<int32_t>(i) + __builtin_ctz(selected);
        selected &= selected - 1;
      }
    }
  }
  const T rest = climb<T>(curve, scratch.candidates, count, &tau, kMaxSteps);

  if (count > n / 8) {
    write_dense<T>(curve, x, n, top, tau, rest, p);
    return;
  }
  std::memset(p, 0, n * sizeof(T));
  for (int64_t c = 0; c < count; c += lanes) {
    T values[lanes];
    store<T>(values, curve.value((load(scratch.candidates + c) - tau) - rest));
    const int part = static_cast<int>(std::min<int64_t>(lanes, count - c));
    for (int lane = 0; lane < part; ++lane) p[scratch.indices[c + lane]] = values[lane];
  }
}

template <class T>
inline void softmax_row(const T* x, int64_t n, T top, T* p) {
  constexpr int lanes = kLanes<T>;
  double total = 0;
  int64_t j = 0;
  while (j + lanes <= n) {
    const int64_t end = std::min<int64_t>(n, j + 64 * lanes);
    Vec<T> sum = splat(T(0));
    for (; j + lanes <= end; j += lanes) {
      const Vec<T> e = exp(load(x + j) - top);
      store(p + j, e);
      sum += e;
    }
    total += static_cast<double>(sum_lanes<T>(sum));
  }
  const int part = static_cast<int>(n - j);
  if (part > 0) {
    const Vec<T> e = exp(load_part(x + j, part, -kInf<T>) - top);
    store_part(p + j, e, part);
    total += static_cast<double>(sum_lanes<T>(e));
  }
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

// x and p contiguous.
template <class T>
inline void entmax_row(const T* x, int64_t n, double alpha, T* p, void* memory) {
  const RowScratch<T> scratch(memory, n);
  T top;
  bool has_nan;
  const int64_t count = block_maxima(x, n, scratch.maxima, &top, &has_nan);
  const Kind kind = kind_of(alpha);
  if (has_nan || top == kInf<T> || kind == Kind::kInvalid) return fill_row(p, n, kNaN<T>);
  if (top == -kInf<T>) return fill_row(p, n, T(0));
  switch (kind) {
    case Kind::kSoftmax:
      return softmax_row(x, n, top, p);
    case Kind::kSquare:
      return solve_row<T>(Square<T>{}, T(-2), T(0), x, n, top, scratch.maxima, count, p, scratch);
    case Kind::kLinear:
      return solve_row<T>(Linear<T>{}, T(-1), T(0), x, n, top, scratch.maxima, count, p, scratch);
    case Kind::kGeneral: {
      const double a = alpha - 1, base = base_of(a);
      const General<T> curve(a);
      // A little further than base/a, which is rounded: an entry too many costs nothing.
      const T reach = static_cast<T>(base / a) * (1 + 4 * std::numeric_limits<T>::epsilon());
      const T lowest = static_cast<T>((base - 1) / a);
      return solve_row<T>(curve, lowest, reach, x, n, top, scratch.maxima, count, p, scratch);
    }
    case Kind::kSteep:
      return steep_row(x, 1, n, static_cast<double>(top), alpha, p, 1, scratch.doubles);
    default:
      return argmax_row(x, n, top, p);
  }
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
