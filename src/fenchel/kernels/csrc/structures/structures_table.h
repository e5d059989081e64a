// The structured kernels of one instruction set, as function pointers. All compute in float64.
#pragma once

#include <cstdint>
#include <vector>

#include "../fenchel.h"

namespace fenchel {

// Where SparseMAP ended: the members that have a weight, and how the weights move.
struct Face {
  std::vector<int32_t> parts;   // the members' lists, one after another
  std::vector<int32_t> ends;    // where each of them ends
  std::vector<double> weights;  // in the order of the lists
  std::vector<double> matrix;   // (members, members): the weights' derivative in members' scores
};

// Those that the C ABI hands on as they are: fenchel_<name> has the signature.
#define FENCHEL_STRUCTURE_KERNELS(X) \
  X(most_parts)                      \
  X(best_parts)                      \
  X(face_product)                    \
  X(sequence_smoothed)               \
  X(sequence_product)                \
  X(sequence_sample)                 \
  X(sequence_k_best)                 \
  X(tree_sums)                       \
  X(alignment_smoothed)              \
  X(alignment_product)

struct StructureKernels {
#define FENCHEL_MEMBER(name) decltype(&fenchel_##name) name;
  FENCHEL_STRUCTURE_KERNELS(FENCHEL_MEMBER)
#undef FENCHEL_MEMBER
  // As fenchel_active_set, with the face of each instance instead of a handle.
  int (*active_set)(int kind, const double* scores, int64_t count, int64_t parts, int64_t n_unary,
                    const int64_t* layout, const int64_t* sizes, int64_t size_width,
                    int64_t max_iter, double tol, int complete, double* means, double* gap,
                    int64_t* iterations, int64_t* status, Face* faces);
};

}  // namespace fenchel
