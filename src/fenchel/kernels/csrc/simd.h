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

template <class T>
inline T sum_lanes(Vec<T> v) {
  // Pairwise, in a fixed order.
  T part[kLanes<T>];
  store(part, v);
  for (int width = kLanes<T> / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) part[lane] += part[lane + width];
  }
  return part[0];
}

template <class T>
inline T max_lanes(Vec<T> v) {
  T best = v[0];
  for (int lane = 1; lane < kLanes<T>; ++lane) best = v[lane] > best ? v[lane] : best;
  return best;
}

// Appends the lanes of v whose bit is set to `to`; up to kLanes entries behind them are written
// over too. Returns how many were appended.
template <class T>
inline int append(T* to, Vec<T> v, uint32_t selected) {
#if defined(__AVX512F__)
  // Compress in a register and store whole: compressing into memory is microcoded on some CPUs.
  if constexpr (sizeof(T) == 4) {
    store<T>(to, (Vec<T>)_mm512_maskz_compress_ps((__mmask16)selected, (__m512)v));
  } else {
    store<T>(to, (Vec<T>)_mm512_maskz_compress_pd((__mmask8)selected, (__m512d)v));
  }
  return __builtin_popcount(selected);
#else
  int count = 0;
  while (selected != 0) {
    to[count++] = v[__builtin_ctz(selected)];
    selected &= selected - 1;
  }
  return count;
#endif
}

// ---- exp and log ---------------------------------------------------------------------------
// float: polynomials fitted with an error below 1e-8; double: the C library's, lane by lane.

inline Vec<double> exp(Vec<double> x) {
  for (int lane = 0; lane < kLanes<double>; ++lane) x[lane] = std::exp(x[lane]);
  return x;
}

inline Vec<double> log(Vec<double> x) {
  for (int lane = 0; lane < kLanes<double>; ++lane) x[lane] = std::log(x[lane]);
  return x;
}

// exp(x) for x <= 88; 0 below -87 (no subnormal numbers).
inline Vec<float> exp(Vec<float> x) {
  const Mask<float> tiny = x < -87.0f;
  x = tiny ? splat(-87.0f) : x;
  const Vec<float> shifter = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec<float> shifted = x * 1.44269504f + shifter;
  const Vec<float> k = shifted - shifter;
  Vec<float> r = x - k * 0.693359375f;  // ln 2 in two parts, the first exact in few bits
  r = r - k * -2.12194440e-4f;
  Vec<float> q = splat(0.001392618359f);
  q = q * r + 0.008363179053f;
  q = q * r + 0.04166655462f;
  q = q * r + 0.1666657699f;
  q = q * r + 0.5f;
  const Vec<float> e = (q * r) * r + r + 1.0f;
  const Mask<float> exponent = ((Mask<float>)shifted - (Mask<float>)shifter) << 23;
  const Vec<float> scaled = (Vec<float>)((Mask<float>)e + exponent);
  return tiny ? splat(0.0f) : scaled;
}

// log(x) for positive normal x; log of 0 is about -88 (callers select it away).
inline Vec<float> log(Vec<float> x) {
  const Mask<float> i = (Mask<float>)x;
  const Mask<float> e = (i - 0x3f2aaaab) >> 23;  // x = m 2^e, m in [2/3, 4/3)
  const Vec<float> f = (Vec<float>)(i - (e << 23)) - 1.0f;
  Vec<float> q = splat(-0.1212558065f);
  q = q * f + 0.1342574901f;
  q = q * f + -0.1234619025f;
  q = q * f + 0.141183099f;
  q = q * f + -0.1667014069f;
  q = q * f + 0.2000378032f;
  q = q * f + -0.249999879f;
  q = q * f + 0.3333332017f;
  const Vec<float> power = __builtin_convertvector(e, Vec<float>);
  const Vec<float> square = f * f;
  const Vec<float> tail = (q * f - 0.5f) * square + power * -2.12194440e-4f;
  return power * 0.693359375f + (tail + f);
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
