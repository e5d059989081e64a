// exp of vectors of doubles, for the dynamic programs: a dozen multiplications for all lanes.
#pragma once

#include "../simd.h"

namespace fenchel {
namespace FENCHEL_ISA {

// exp(x) for x <= 709, to the last bit or two; 0 below -708, so that no result is subnormal.
inline Vec<double> vector_exp(Vec<double> x) {
  typedef uint64_t Word __attribute__((vector_size(kVectorBytes)));
  const Mask<double> tiny = x < -708.0;
  x = tiny ? splat(-708.0) : x;
  const Vec<double> shifter = splat(6755399441055744.0);  // 1.5 * 2^52: adding it rounds
  const Vec<double> shifted = x * 1.4426950408889634 + shifter;
  const Vec<double> k = shifted - shifter;
  Vec<double> r = x - k * 0.693145751953125;  // ln 2 in two parts, the first exact in few bits
  r = r - k * 1.4286068203094172e-06;
  // Taylor's polynomial: |r| <= ln 2 / 2, where the first term left out is below 5e-18.
  Vec<double> q = splat(1.0 / 6227020800.0);
  q = q * r + 1.0 / 479001600.0;
  q = q * r + 1.0 / 39916800.0;
  q = q * r + 1.0 / 3628800.0;
  q = q * r + 1.0 / 362880.0;
  q = q * r + 1.0 / 40320.0;
  q = q * r + 1.0 / 5040.0;
  q = q * r + 1.0 / 720.0;
  q = q * r + 1.0 / 120.0;
  q = q * r + 1.0 / 24.0;
  q = q * r + 1.0 / 6.0;
  q = q * r + 0.5;
  const Vec<double> e = (q * r) * r + r + 1.0;
  const Word exponent = ((Word)shifted - (Word)shifter) << 52;
  const Vec<double> scaled = (Vec<double>)((Word)e + exponent);
  return tiny ? splat(0.0) : scaled;
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
