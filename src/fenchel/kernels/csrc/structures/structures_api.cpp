// The C ABI of the structured kernels.
#include "../instruction_set.h"
#include "structures_table.h"

namespace fenchel {

namespace baseline {
extern const StructureKernels structure_kernels;
}
namespace avx2 {
extern const StructureKernels structure_kernels;
}
namespace avx512 {
extern const StructureKernels structure_kernels;
}

namespace {

const StructureKernels& structure_kernels() {
  static const StructureKernels* const chosen = [] {
    switch (instruction_set()) {
#if defined(FENCHEL_HAVE_AVX512)
      case InstructionSet::avx512:
        return &avx512::structure_kernels;
#endif
#if defined(FENCHEL_HAVE_AVX2)
      case InstructionSet::avx2:
        return &avx2::structure_kernels;
#endif
      default:
        return &baseline::structure_kernels;
    }
  }();
  return *chosen;
}

}  // namespace
}  // namespace fenchel

#define FENCHEL_API extern "C" __attribute__((visibility("default")))

FENCHEL_API int64_t fenchel_most_parts(int kind, const int64_t* layout) {
  return fenchel::structure_kernels().most_parts(kind, layout);
}

FENCHEL_API int fenchel_best_parts(int kind, const double* scores, int64_t count, int64_t parts,
                                   const int64_t* layout, const int64_t* sizes, int64_t size_width,
                                   int32_t* out, int64_t most) {
  return fenchel::structure_kernels().best_parts(kind, scores, count, parts, layout, sizes,
                                                 size_width, out, most);
}

FENCHEL_API int fenchel_alignment_smoothed(int omega, double gamma, const double* scores,
                                           int64_t count, int64_t parts, const int64_t* layout,
                                           const int64_t* sizes, double* values,
                                           double* gradients) {
  return fenchel::structure_kernels().alignment_smoothed(omega, gamma, scores, count, parts, layout,
                                                         sizes, values, gradients);
}

FENCHEL_API int fenchel_alignment_product(int omega, double gamma, const double* scores,
                                          const double* directions, int64_t count, int64_t parts,
                                          const int64_t* layout, const int64_t* sizes,
                                          double* out) {
  return fenchel::structure_kernels().alignment_product(omega, gamma, scores, directions, count,
                                                        parts, layout, sizes, out);
}
