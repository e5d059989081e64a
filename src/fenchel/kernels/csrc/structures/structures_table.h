// The structured kernels of one instruction set. All compute in float64; every function returns
// a Status of stopping.h.
#pragma once

#include <cstdint>
#include <vector>

namespace fenchel {

// The oracles, by the numbers that kernels/_native_structures.py knows them by.
enum Kind : int {
  kKSubsets = 0,
  kSequence = 1,
  kTree = 2,
  kProjectiveTree = 3,
  kAssignment = 4,
  kAlignment = 5
};

// Where SparseMAP ended: the members that have a weight, and how the weights move.
struct Face {
  std::vector<int32_t> parts;   // the members' lists, one after another
  std::vector<int32_t> ends;    // where each of them ends
  std::vector<double> weights;  // in the order of the lists
  std::vector<double> matrix;   // (members, members): the weights' derivative in members' scores
};

// Of SparseMAP: the gap is within the tolerance; it is not, and there were no iterations left; nor
// could rounding errors be told from progress any more; no member has a finite score.
enum FaceStatus : int { kSolved = 0, kMaxIter = 1, kStalled = 2, kInfeasible = 3 };
// The smoothings of alignments, by the numbers that kernels/_native_alignment.py knows them by.
enum AlignmentOmega : int { kEntropy = 0, kSquared = 1 };

struct StructureKernels {
  int64_t (*most_parts)(int kind, const int64_t* layout);
  // Lists of parts (count, most), -1 in the places left; -2 first where no member is finite.
  int (*best_parts)(int kind, const double* scores, int64_t count, int64_t parts,
                    const int64_t* layout, const int64_t* sizes, int64_t size_width, int32_t* out,
                    int64_t most);
  // SparseMAP: means (count, parts), and for each instance its face, gap, iterations and status.
  int (*active_set)(int kind, const double* scores, int64_t count, int64_t parts, int64_t n_unary,
                    const int64_t* layout, const int64_t* sizes, int64_t size_width,
                    int64_t max_iter, double tol, int complete, double* means, double* gap,
                    int64_t* iterations, int64_t* status, Face* faces);
  // out = A Q A' x for each instance; A: members as lists (count, members, longest), -1 for none.
  int (*face_product)(const int32_t* lists, const double* matrix, const double* x, double* out,
                      int64_t count, int64_t parts, int64_t members, int64_t longest);

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
  int (*tree_sums)(int projective, const double* scores, const double* direction, int64_t count,
                   int64_t parts, const int64_t* layout, const int64_t* sizes, double* value,
                   double* marginals);
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
