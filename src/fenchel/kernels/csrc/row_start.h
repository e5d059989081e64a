// What the maps in double do first: the row's maximum, and the rows that need no solving.
#pragma once

#include <cstdint>

#include "entmax_row.h"
#include "simd.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Whether the row is done: NaN for a bad value or a bad parameter, zeros where all is masked.
// Otherwise *top is its maximum, which is finite.
template <class T>
inline bool finish_bad_row(const T* x, int64_t n, bool good_parameter, T* p, double* top) {
  *top = -kInf<double>;
  bool has_nan = false;
  for (int64_t j = 0; j < n; ++j) {
    has_nan |= x[j] != x[j];
    if (x[j] > *top) *top = x[j];
  }
  const bool bad = has_nan || *top == kInf<double> || !good_parameter;
  if (bad || *top == -kInf<double>) fill_row(p, n, bad ? kNaN<T> : T(0));
  return bad || *top == -kInf<double>;
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
