// The structured kernels of one instruction set. All compute in float64; every function returns 0,
// or 1 when memory ran out.
#pragma once

#include <cstdint>

namespace fenchel {

// The oracles, by the numbers that kernels/_native_structures.py knows them by.
enum Kind : int { kKSubsets = 0, kSequence = 1, kTree = 2, kProjectiveTree = 3, kAssignment = 4, kAlignment = 5 };

struct StructureKernels {
  int64_t (*most_parts)(int kind, const int64_t* layout);
  // Lists of parts (count, most), -1 in the places left; -2 first where no member is finite.
  int (*best_parts)(int kind, const double* scores, int64_t count, int64_t parts,
                    const int64_t* layout, const int64_t* sizes, int64_t size_width,
                    int32_t* out, int64_t most);

  // Chains; omega 0 is entropy, 1 is l2, both with temperature 1. sizes (count, 1). Smoothed maxima
  // (count), -inf where no member is finite, and, unless `means` is null, gradients (count, parts).
  int (*sequence_smoothed)(int omega, const double* scores, int64_t count, int64_t parts,
                           const int64_t* layout, const int64_t* sizes, double* values,
                           double* means);
  // Hessians times directions, all (count, parts).
  int (*sequence_product)(int omega, const double* scores, const double* directions, int64_t count,
                          int64_t parts, const int64_t* layout, const int64_t* sizes, double* out);
  // Lists of parts (samples, count, most) from uniform numbers (samples, count, T).
  int (*sequence_sample)(const double* scores, int64_t count, int64_t parts, const int64_t* layout,
                         const int64_t* sizes, const double* uniform, int64_t samples,
                         int32_t* out);
  // Lists of parts (count, how_many, most) and scores (count, how_many), the best first.
  int (*sequence_k_best)(const double* scores, int64_t count, int64_t parts, const int64_t* layout,
                         const int64_t* sizes, int64_t how_many, int32_t* out, double* values);
};

}  // namespace fenchel
