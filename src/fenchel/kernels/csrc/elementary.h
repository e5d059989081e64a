// exp, log and powers of vectors. float: polynomials fitted with an error below 1e-8; double: the C
// library's, lane by lane (structures/exp_log.h has polynomials for double, to about an ulp).
#pragma once

#include <cmath>
#include <cstdint>

#include "simd.h"

namespace fenchel {
namespace FENCHEL_ISA {

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
  using Word = Simd<float>::word;
  const Word exponent = ((Word)shifted - (Word)shifter) << 23;
  const Vec<float> scaled = (Vec<float>)((Word)e + exponent);
  return tiny ? splat(0.0f) : scaled;
}

// log(x) for positive normal x; log of 0 is about -88 (callers select it away).
inline Vec<float> log(Vec<float> x) {
  using Word = Simd<float>::word;
  const Word i = (Word)x;
  const Mask<float> e = (Mask<float>)(i - 0x3f2aaaabu) >> 23;  // x = m 2^e, m in [2/3, 4/3)
  const Vec<float> f = (Vec<float>)(i - ((Word)e << 23)) - 1.0f;
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

// z^exponent for normal z > 0 and a result of at most 1.
template <class T>
inline Vec<T> power(Vec<T> z, Vec<T> exponent) {
  return exp(log(z) * exponent);
}

#if defined(__AVX512F__)
// With tables of 16 entries, which are one register here, half the polynomials suffice.
template <>
inline Vec<float> power<float>(Vec<float> z_, Vec<float> exponent) {
  const __m512 z = (__m512)z_;
  // z = m 2^e, m in [3/4, 3/2); m = (1 + r) / c with c from the table: 1 around 1, to stay exact.
  const __m512 m = _mm512_getmant_ps(z, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
  const __mmask16 upper = _mm512_cmp_ps_mask(m, _mm512_set1_ps(1.0f), _CMP_LT_OQ);
  const __m512 e0 = _mm512_getexp_ps(z);
  const __m512 e = _mm512_mask_add_ps(e0, upper, e0, _mm512_set1_ps(1.0f));
  const __m512i bin = _mm512_srli_epi32(_mm512_castps_si512(m), 19);  // the low four bits count
  const __m512 c = _mm512_permutexvar_ps(
      bin, _mm512_setr_ps(1.0f, 0.9140625f, 0.86328125f, 0.8203125f, 0.78125f, 0.74609375f,
                          0.7109375f, 0.6796875f, 1.3046875f, 1.25390625f, 1.20703125f, 1.1640625f,
                          1.12109375f, 1.0859375f, 1.05078125f, 1.0f));
  const __m512 minus_log_c = _mm512_permutexvar_ps(
      bin, _mm512_setr_ps(0.0f, 0.12963528f, 0.212097441f, 0.285754482f, 0.35614381f, 0.422571172f,
                          0.49220536f, 0.557056504f, -0.383704292f, -0.326429487f, -0.271463028f,
                          -0.21916852f, -0.164906927f, -0.118941073f, -0.0714623626f, 0.0f));
  const __m512 r = _mm512_fmsub_ps(m, c, _mm512_set1_ps(1.0f));
  __m512 q = _mm512_set1_ps(-0.3448543916f);
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.4811916865f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(-0.7213624959f));
  q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(1.442694981f));
  const __m512 log2_z = _mm512_fmadd_ps(q, r, _mm512_add_ps(e, minus_log_c));

  // 2^y, y = k + i/16 + r, |r| <= 1/32; below 2^-126 it is 0.
  const __m512 y = _mm512_max_ps(_mm512_mul_ps(log2_z, (__m512)exponent), _mm512_set1_ps(-200.0f));
  const __m512 shifter = _mm512_set1_ps(786432.0f);  // 1.5 * 2^19: rounds to sixteenths
  const __m512 shifted = _mm512_add_ps(y, shifter);
  const __m512 steps = _mm512_sub_ps(shifted, shifter);
  const __m512 rest = _mm512_sub_ps(y, steps);
  const __m512 root = _mm512_permutexvar_ps(
      _mm512_castps_si512(shifted),
      _mm512_setr_ps(1.0f, 1.04427378f, 1.09050773f, 1.13878863f, 1.18920712f, 1.24185781f,
                     1.29683955f, 1.35425555f, 1.41421356f, 1.47682615f, 1.54221083f, 1.61049033f,
                     1.68179283f, 1.75625216f, 1.83400809f, 1.91520656f));
  __m512 w = _mm512_set1_ps(0.05550508525f);
  w = _mm512_fmadd_ps(w, rest, _mm512_set1_ps(0.2402335516f));
  w = _mm512_fmadd_ps(w, rest, _mm512_set1_ps(0.6931471806f));
  w = _mm512_mul_ps(w, rest);
  return (Vec<float>)_mm512_scalef_ps(_mm512_fmadd_ps(w, root, root), steps);
}
#endif

}  // namespace FENCHEL_ISA
}  // namespace fenchel
