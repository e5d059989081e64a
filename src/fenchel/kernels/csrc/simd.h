// Vectors of one instruction set's width, with the few operations the kernels need.
//
// The file is compiled once per instruction set, in a namespace of its own; GCC's and Clang's
// vector extensions give arithmetic, comparison and selection on every one of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace fenchel {
namespace FENCHEL_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <class T>
struct Simd;

template <>
struct Simd<float> {
  typedef float vec __attribute__((vector_size(kVectorBytes)));
  typedef uint32_t word __attribute__((vector_size(kVectorBytes)));  // for arithmetic on bits
  typedef int32_t mask __attribute__((vector_size(kVectorBytes)));
};

template <>
struct Simd<double> {
  typedef double vec __attribute__((vector_size(kVectorBytes)));
  typedef int64_t mask __attribute__((vector_size(kVectorBytes)));
};

template <class T>
using Vec = typename Simd<T>::vec;
template <class T>
using Mask = typename Simd<T>::mask;
template <class T>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <class T>
constexpr T kInf = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();

template <class T>
inline Vec<T> splat(T value) {
  return Vec<T>{} + value;
}

template <class T>
inline Vec<T> load(const T* from) {
  Vec<T> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class T>
inline void store(T* to, Vec<T> v) {
  std::memcpy(to, &v, sizeof v);
}

// The first `count` entries; the other lanes hold `fill`.
template <class T>
inline Vec<T> load_part(const T* from, int count, T fill) {
  Vec<T> v = splat(fill);
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return (Vec<T>)_mm512_mask_loadu_ps((__m512)v, (__mmask16)((1u << count) - 1), from);
  } else {
    return (Vec<T>)_mm512_mask_loadu_pd((__m512d)v, (__mmask8)((1u << count) - 1), from);
  }
#else
  std::memcpy(&v, from, count * sizeof(T));
  return v;
#endif
}

template <class T>
inline void store_part(T* to, Vec<T> v, int count) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)v);
  } else {
    _mm512_mask_storeu_pd(to, (__mmask8)((1u << count) - 1), (__m512d)v);
  }
#else
  std::memcpy(to, &v, count * sizeof(T));
#endif
}

// The larger of two; the second where either is NaN.
template <class T>
inline Vec<T> larger(Vec<T> a, Vec<T> b) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return (Vec<T>)_mm512_max_ps((__m512)a, (__m512)b);
  } else {
    return (Vec<T>)_mm512_max_pd((__m512d)a, (__m512d)b);
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    return (Vec<T>)_mm256_max_ps((__m256)a, (__m256)b);
  } else {
    return (Vec<T>)_mm256_max_pd((__m256d)a, (__m256d)b);
  }
#else
  return a > b ? a : b;
#endif
}

// One bit a lane, lane 0 lowest.
template <class T>
inline uint32_t bits(Mask<T> m) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return _mm512_movepi32_mask((__m512i)m);
  } else {
    return _mm512_movepi64_mask((__m512i)m);
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    return _mm256_movemask_ps((__m256)m);
  } else {
    return _mm256_movemask_pd((__m256d)m);
  }
#else
  uint32_t out = 0;
  for (int lane = 0; lane < kLanes<T>; ++lane) out |= (m[lane] ? 1u : 0u) << lane;
  return out;
#endif
}

template <class T>
inline bool any(Mask<T> m) {
  return bits<T>(m) != 0;
}

// Sum and maximum over the lanes, in a fixed order.
template <class T>
inline T sum_lanes(Vec<T> v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return _mm512_reduce_add_ps((__m512)v);
  } else {
    return _mm512_reduce_add_pd((__m512d)v);
  }
#else
  T part[kLanes<T>];
  store(part, v);
  for (int width = kLanes<T> / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) part[lane] += part[lane + width];
  }
  return part[0];
#endif
}

template <class T>
inline double sum_lanes_in_double(Vec<T> v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    const __m512 x = (__m512)v;
    return _mm512_reduce_add_pd(_mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(x)),
                                              _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1))));
  }
#endif
  double total = 0;
  for (int lane = 0; lane < kLanes<T>; ++lane) total += static_cast<double>(v[lane]);
  return total;
}

// A sum of many vectors. Terms go through `add` up to kBlock at a time, summed plainly; blocks are
// summed with what rounding took kept beside, so that many small terms count beside a large one.
template <class T>
struct Total {
  static constexpr int kBlock = 8;
  Vec<T> sum = splat(T(0)), lost = splat(T(0));

  void add(Vec<T> block) {
    const Vec<T> next = sum + block, back = next - sum;
    lost += (sum - (next - back)) + (block - back);
    sum = next;
  }
  Vec<T> value() const { return sum + lost; }
  double over_lanes() const { return sum_lanes_in_double<T>(sum) + sum_lanes_in_double<T>(lost); }
};

template <class T>
inline T max_lanes(Vec<T> v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return _mm512_reduce_max_ps((__m512)v);
  } else {
    return _mm512_reduce_max_pd((__m512d)v);
  }
#else
  T best = v[0];
  for (int lane = 1; lane < kLanes<T>; ++lane) best = v[lane] > best ? v[lane] : best;
  return best;
#endif
}

template <class T>
inline Vec<T> sqrt(Vec<T> v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    // Four times as fast as the instruction: 14 bits, then one Newton step; 0 and NaN stay.
    const Vec<T> r = (Vec<T>)_mm512_rsqrt14_ps((__m512)v), root = v * r;
    return v == T(0) ? v : root * (T(1.5) - T(0.5) * root * r);
  }
#endif
  for (int lane = 0; lane < kLanes<T>; ++lane) v[lane] = std::sqrt(v[lane]);
  return v;
}

// 1/v to about three digits or better: enough for the slope in a Newton step.
template <class T>
inline Vec<T> rough_inverse(Vec<T> v) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return (Vec<T>)_mm512_rcp14_ps((__m512)v);
  } else {
    return T(1) / v;
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(T) == 4) {
    return (Vec<T>)_mm256_rcp_ps((__m256)v);
  } else {
    return T(1) / v;
  }
#else
  return T(1) / v;
#endif
}

// Appends the lanes of v whose bit is set to `to`, and their positions (lane + offset) to
// `positions`; up to kLanes entries behind them are written over too. Returns how many.
template <class T>
inline int append(T* to, int32_t* positions, Vec<T> v, uint32_t selected, int32_t offset) {
#if defined(__AVX512F__)
  // Compress in a register and store whole: compressing into memory is microcoded on some CPUs.
  if constexpr (sizeof(T) == 4) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i here = _mm512_add_epi32(lane, _mm512_set1_epi32(offset));
    store<T>(to, (Vec<T>)_mm512_maskz_compress_ps((__mmask16)selected, (__m512)v));
    _mm512_storeu_si512(positions, _mm512_maskz_compress_epi32((__mmask16)selected, here));
    return __builtin_popcount(selected);
  }
#endif
  int count = 0;
  while (selected != 0) {
    const int lane = __builtin_ctz(selected);
    to[count] = v[lane];
    positions[count++] = offset + lane;
    selected &= selected - 1;
  }
  return count;
}

// Lane i of the result is entry order[i] of a followed by b.
template <class T>
inline Vec<T> shuffle(Vec<T> a, Vec<T> b, Mask<T> order) {
#if defined(__clang__)
  Vec<T> out;
  for (int lane = 0; lane < kLanes<T>; ++lane) {
    const int from = static_cast<int>(order[lane]);
    out[lane] = from < kLanes<T> ? a[from] : b[from - kLanes<T>];
  }
  return out;
#else
  return __builtin_shuffle(a, b, order);
#endif
}

// kLanes vectors as a square matrix, transposed: riffling the upper half of the rows into the
// lower, log2(kLanes) times over, exchanges rows and columns.
template <class T>
inline void transpose(Vec<T>* rows) {
  constexpr int lanes = kLanes<T>, half = lanes / 2;
  Mask<T> low, high;
  for (int lane = 0; lane < lanes; ++lane) {
    low[lane] = lane / 2 + (lane % 2) * lanes;
    high[lane] = low[lane] + half;
  }
  for (int round = lanes; round > 1; round /= 2) {
    Vec<T> riffled[lanes];
    for (int i = 0; i < half; ++i) {
      riffled[2 * i] = shuffle<T>(rows[i], rows[i + half], low);
      riffled[2 * i + 1] = shuffle<T>(rows[i], rows[i + half], high);
    }
    for (int i = 0; i < lanes; ++i) rows[i] = riffled[i];
  }
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
