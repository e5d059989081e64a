// The structured kernels of one instruction set. All compute in float64; every function returns 0,
// or 1 when memory ran out.
#pragma once

#include <cstdint>

namespace fenchel {

// The oracles, by the numbers that kernels/_native_structures.py knows them by.
enum Kind : int { kKSubsets = 0, kSequence = 1, kTree = 2, kProjectiveTree = 3, kAssignment = 4, kAlignment = 5 };

// The smoothings of alignments, by the numbers that kernels/_native_alignment.py knows them by.
enum AlignmentOmega : int { kEntropy = 0, kSquared = 1 };

struct StructureKernels {
  int64_t (*most_parts)(int kind, const int64_t* layout);
  // Lists of parts (count, most), -1 in the places left; -2 first where no member is finite.
  int (*best_parts)(int kind, const double* scores, int64_t count, int64_t parts,
                    const int64_t* layout, const int64_t* sizes, int64_t size_width,
                    int32_t* out, int64_t most);
  // Smoothed maxima over alignments (count) and, unless null, expected alignments (count, parts).
  int (*alignment_smoothed)(int omega, double gamma, const double* scores, int64_t count,
                            int64_t parts, const int64_t* layout, const int64_t* sizes,
                            double* values, double* gradients);
  // Their Hessians times `directions` (count, parts).
  int (*alignment_product)(int omega, double gamma, const double* scores, const double* directions,
                           int64_t count, int64_t parts, const int64_t* layout,
                           const int64_t* sizes, double* out);
};

}  // namespace fenchel
