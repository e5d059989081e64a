// Loops of the sums over trees on plain numbers, a vector at a time.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "../simd.h"

namespace fenchel {
namespace FENCHEL_ISA {

typedef uint64_t Bits __attribute__((vector_size(kVectorBytes)));

// exp in double precision, to about one unit in the last place; 0 below -708.
inline Vec<double> exp_of(Vec<double> x) {
  const Vec<double> shifter =
      splat(0x1.8p52);  // adding it rounds to a whole number, in the low bits
  const Vec<double> bounded = larger<double>(x, splat(-708.0));
  const Vec<double> shifted = bounded * splat(1.4426950408889634) + shifter;
  const Vec<double> k = shifted - shifter;
  const Vec<double> r =
      (bounded - k * splat(0x1.62e42fee00000p-1)) - k * splat(0x1.a39ef35793c76p-33);
  Vec<double> p = splat(1.0 / 6227020800.0);
  for (const double c : {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
                         1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0}) {
    p = p * r + splat(c);
  }
  const Bits scale = ((Bits)shifted << 52) + (uint64_t{1023} << 52);
  return x < splat(-708.0) ? splat(0.0) : p * (Vec<double>)scale;
}

// out = exp(x - shift), n of them.
inline void exp_row(const double* x, double shift, double* out, int64_t n) {
  constexpr int lanes = kLanes<double>;
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(out + i, exp_of(load(x + i) - splat(shift)));
  if (i < n) {
    const int left = static_cast<int>(n - i);
    store_part(out + i, exp_of(load_part(x + i, left, shift) - splat(shift)), left);
  }
}

// The smallest and the largest of n numbers, and of what is there already.
inline void widen(const double* x, int64_t n, double* low, double* high) {
  constexpr int lanes = kLanes<double>;
  int64_t i = 0;
  if (n >= lanes) {
    Vec<double> most = load(x), least = -most;
    for (i = lanes; i + lanes <= n; i += lanes) {
      most = larger<double>(most, load(x + i));
      least = larger<double>(least, -load(x + i));
    }
    for (int lane = 0; lane < lanes; ++lane) {
      *high = most[lane] > *high ? most[lane] : *high;
      *low = -least[lane] < *low ? -least[lane] : *low;
    }
  }
  for (; i < n; ++i) {
    *high = x[i] > *high ? x[i] : *high;
    *low = x[i] < *low ? x[i] : *low;
  }
}

// column_j += share_j * through for `count` columns that are `stride` apart; `length` is a whole
// number of vectors. A few vectors of `through` stay in registers while all columns pass.
template <int kVectors>
inline void add_outer_part(double* columns, int64_t count, int64_t stride, const double* through,
                           const double* shares) {
  constexpr int lanes = kLanes<double>;
  Vec<double> from[kVectors];
  for (int v = 0; v < kVectors; ++v) from[v] = load(through + v * lanes);
  for (int64_t j = 0; j < count; ++j) {
    double* to = columns + j * stride;
    const Vec<double> share = splat(shares[j]);
    for (int v = 0; v < kVectors; ++v) {
      store(to + v * lanes, load(to + v * lanes) + from[v] * share);
    }
  }
}

inline void add_outer(double* columns, int64_t count, int64_t stride, const double* through,
                      const double* shares, int64_t length) {
  constexpr int64_t lanes = kLanes<double>;
  int64_t i = 0;
  for (; i + 4 * lanes <= length; i += 4 * lanes) {
    add_outer_part<4>(columns + i, count, stride, through + i, shares);
  }
  for (; i + 2 * lanes <= length; i += 2 * lanes) {
    add_outer_part<2>(columns + i, count, stride, through + i, shares);
  }
  for (; i < length; i += lanes) add_outer_part<1>(columns + i, count, stride, through + i, shares);
}

template <class T>
inline void add_outer(T* columns, int64_t count, int64_t stride, const T* through, const T* shares,
                      int64_t length) {
  for (int64_t j = 0; j < count; ++j) {
    T* to = columns + j * stride;
    for (int64_t i = 0; i < length; ++i) to[i] = to[i] + through[i] * shares[j];
  }
}

template <class T>
inline T entries_sum(const T* x, int64_t n) {
  T sum{};
  for (int64_t i = 0; i < n; ++i) sum = sum + x[i];
  return sum;
}

inline double entries_sum(const double* x, int64_t n) {
  constexpr int lanes = kLanes<double>;
  Vec<double> sum = splat(0.0);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sum += load(x + i);
  if (i < n) sum += load_part(x + i, static_cast<int>(n - i), 0.0);
  return sum_lanes<double>(sum);
}

// Room for a column: a whole number of vectors if they are plain numbers.
template <class T>
inline int64_t column_room(int64_t n) {
  constexpr int64_t lanes = std::is_same<T, double>::value ? kLanes<double> : 1;
  return (n + lanes - 1) / lanes * lanes;
}

// The first place of a vector that is a cache line's start; it has eight entries more than needed.
template <class T>
inline T* aligned(std::vector<T>& v) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(v.data());
  return std::is_same<T, double>::value ? reinterpret_cast<T*>((at + 63) / 64 * 64) : v.data();
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
