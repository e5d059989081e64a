// exp and log of vectors of doubles, in polynomials: accurate to about an ulp, and the same on
// every lane.
#pragma once

#include <cstdint>

#include "../simd.h"

namespace fenchel {
namespace FENCHEL_ISA {

// exp(x) for x <= 709; 0 below -708 (no subnormal numbers), also for -inf.
inline Vec<double> vector_exp(Vec<double> x) {
  typedef uint64_t Word __attribute__((vector_size(kVectorBytes)));
  const Mask<double> tiny = x < -708.0;
  x = tiny ? splat(-708.0) : x;
  const Vec<double> shifter = splat(6755399441055744.0);  // 1.5 * 2^52: adding it rounds
  const Vec<double> shifted = x * 1.4426950408889634 + shifter;
  const Vec<double> k = shifted - shifter;
  Vec<double> r = x - k * 0x1.62e42fee00000p-1;  // ln 2 in two parts, the first in 33 bits
  r = r - k * 0x1.a39ef35793c76p-33;
  // Taylor's series to r^13, |r| <= ln(2) / 2; odd and even powers apart: half the latency.
  const Vec<double> z = r * r;
  Vec<double> odd = splat(1.0 / 6227020800.0), even = splat(1.0 / 479001600.0);
  odd = odd * z + 1.0 / 39916800.0;
  even = even * z + 1.0 / 3628800.0;
  odd = odd * z + 1.0 / 362880.0;
  even = even * z + 1.0 / 40320.0;
  odd = odd * z + 1.0 / 5040.0;
  even = even * z + 1.0 / 720.0;
  odd = odd * z + 1.0 / 120.0;
  even = even * z + 1.0 / 24.0;
  odd = odd * z + 1.0 / 6.0;
  even = even * z + 0.5;
  const Vec<double> e = (odd * r + even) * z + r + 1.0;
  const Word exponent = ((Word)shifted - (Word)shifter) << 52;
  const Vec<double> scaled = (Vec<double>)((Word)e + exponent);
  return tiny ? splat(0.0) : scaled;
}

// log(x) for finite x >= 1.
inline Vec<double> log_above_one(Vec<double> x) {
  // x = m 2^e with m in [1/sqrt 2, sqrt 2); the number is the bits of 1/sqrt 2.
  const Mask<double> bits = (Mask<double>)x, e = (bits - 0x3fe6a09e667f3bcdLL) >> 52;
  const Vec<double> f = (Vec<double>)(bits - (e << 52)) - 1.0;
  const Vec<double> s = f / (f + 2.0), z = s * s;  // log(1 + f) = 2 artanh(s), |s| < 0.172
  const Vec<double> z2 = z * z;
  Vec<double> odd = splat(1.0 / 21.0), even = splat(1.0 / 19.0);
  odd = odd * z2 + 1.0 / 17.0;
  even = even * z2 + 1.0 / 15.0;
  odd = odd * z2 + 1.0 / 13.0;
  even = even * z2 + 1.0 / 11.0;
  odd = odd * z2 + 1.0 / 9.0;
  even = even * z2 + 1.0 / 7.0;
  odd = odd * z2 + 1.0 / 5.0;
  even = even * z2 + 1.0 / 3.0;
  const Vec<double> q = odd * z + even;
  const Vec<double> k = __builtin_convertvector(e, Vec<double>);
  const Vec<double> low = 2.0 * s * z * q + k * 0x1.a39ef35793c76p-33;
  return k * 0x1.62e42fee00000p-1 + (low + 2.0 * s);
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
