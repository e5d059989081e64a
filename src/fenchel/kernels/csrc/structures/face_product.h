// How the means of SparseMAP move on their face: A Q A' x, where the columns of A are the members.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "oracle.h"

namespace fenchel {
namespace FENCHEL_ISA {

inline int face_product(const int32_t* lists, const double* matrix, const double* x, double* out,
                        int64_t count, int64_t parts, int64_t members, int64_t longest) {
  return for_instances(count, count * members * (2 * longest + members), [&](int64_t i) {
    const int32_t* const mine = lists + i * members * longest;
    const double* const q = matrix + i * members * members;
    const double* const from = x + i * parts;
    double* const to = out + i * parts;
    std::fill(to, to + parts, 0.0);
    std::vector<double> moved(members, 0.0);
    const StopCheck check;
    for (int64_t s = 0; s < members; ++s) {
      check(members);
      double slope = 0;
      const int32_t* const list = mine + s * longest;
      for (int64_t j = 0; j < longest && list[j] >= 0; ++j) slope += from[list[j]];
      for (int64_t k = 0; k < members; ++k) moved[k] += slope * q[s * members + k];
    }
    for (int64_t s = 0; s < members; ++s) {
      const int32_t* const list = mine + s * longest;
      for (int64_t j = 0; j < longest && list[j] >= 0; ++j) to[list[j]] += moved[s];
    }
  });
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
