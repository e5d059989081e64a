// The C ABI of the structured kernels.
#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "../table.h"
#include "structures_table.h"

namespace {

const fenchel::StructureKernels& kernels() { return *fenchel::table().structures; }

bool is_kind(int kind) { return kind >= 0 && kind < FENCHEL_KIND_COUNT; }
bool is_omega(int omega) { return omega == FENCHEL_ENTROPY || omega == FENCHEL_L2; }

}  // namespace

int fenchel_kind_named(const char* name) {
#define FENCHEL_NAME(kind) \
  if (std::strcmp(name, #kind) == 0) return FENCHEL_##kind;
  FENCHEL_KINDS(FENCHEL_NAME)
#undef FENCHEL_NAME
  return -1;
}

int64_t fenchel_most_parts(int kind, const int64_t* layout) {
  if (!is_kind(kind)) return -1;
  return kernels().most_parts(kind, layout);
}

int fenchel_best_parts(int kind, const double* scores, int64_t count, int64_t parts,
                       const int64_t* layout, const int64_t* sizes, int64_t size_width,
                       int32_t* out, int64_t most) {
  if (!is_kind(kind)) return FENCHEL_OUT_OF_RANGE;
  return kernels().best_parts(kind, scores, count, parts, layout, sizes, size_width, out, most);
}

int fenchel_active_set(int kind, const double* scores, int64_t count, int64_t parts,
                       int64_t n_unary, const int64_t* layout, const int64_t* sizes,
                       int64_t size_width, int64_t max_iter, double tol, int complete,
                       double* means, double* gap, int64_t* iterations, int64_t* status,
                       int64_t* widest, int64_t* longest, void** handle) {
  if (!is_kind(kind)) return FENCHEL_OUT_OF_RANGE;
  std::unique_ptr<fenchel::Face[]> faces(new (std::nothrow) fenchel::Face[count]);
  if (faces == nullptr) return FENCHEL_NO_MEMORY;
  const int failed =
      kernels().active_set(kind, scores, count, parts, n_unary, layout, sizes, size_width, max_iter,
                           tol, complete, means, gap, iterations, status, faces.get());
  if (failed != 0) return failed;
  *widest = *longest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const fenchel::Face& face = faces[i];
    *widest = std::max<int64_t>(*widest, face.ends.size());
    for (size_t s = 0; s < face.ends.size(); ++s) {
      *longest = std::max<int64_t>(*longest, face.ends[s] - (s == 0 ? 0 : face.ends[s - 1]));
    }
  }
  *handle = faces.release();
  return 0;
}

void fenchel_active_set_take(void* handle, int64_t count, int64_t widest, int64_t longest,
                             int32_t* lists, double* weights, double* matrix) {
  const std::unique_ptr<fenchel::Face[]> faces(static_cast<fenchel::Face*>(handle));
  if (lists == nullptr) return;
  std::fill(lists, lists + count * widest * longest, FENCHEL_NO_PART);
  std::fill(weights, weights + count * widest, 0.0);
  std::fill(matrix, matrix + count * widest * widest, 0.0);
  for (int64_t i = 0; i < count; ++i) {
    const fenchel::Face& face = faces[i];
    const int64_t size = static_cast<int64_t>(face.ends.size());
    const int32_t* from = face.parts.data();
    for (int64_t s = 0; s < size; ++s) {
      const int32_t* const end = face.parts.data() + face.ends[s];
      std::copy(from, end, lists + (i * widest + s) * longest);
      from = end;
      std::copy_n(face.matrix.data() + s * size, size, matrix + (i * widest + s) * widest);
    }
    std::copy(face.weights.begin(), face.weights.end(), weights + i * widest);
  }
}

int fenchel_face_product(const int32_t* lists, const double* matrix, const double* x, double* out,
                         int64_t count, int64_t parts, int64_t members, int64_t longest) {
  return kernels().face_product(lists, matrix, x, out, count, parts, members, longest);
}

int fenchel_sequence_smoothed(int omega, const double* scores, int64_t count, int64_t parts,
                              const int64_t* layout, const int64_t* sizes, double* values,
                              double* means) {
  if (!is_omega(omega)) return FENCHEL_OUT_OF_RANGE;
  return kernels().sequence_smoothed(omega, scores, count, parts, layout, sizes, values, means);
}

int fenchel_sequence_product(int omega, const double* scores, const double* directions,
                             int64_t count, int64_t parts, const int64_t* layout,
                             const int64_t* sizes, double* out) {
  if (!is_omega(omega)) return FENCHEL_OUT_OF_RANGE;
  return kernels().sequence_product(omega, scores, directions, count, parts, layout, sizes, out);
}

int fenchel_sequence_sample(const double* scores, int64_t count, int64_t parts,
                            const int64_t* layout, const int64_t* sizes, const double* uniform,
                            int64_t samples, int32_t* out) {
  return kernels().sequence_sample(scores, count, parts, layout, sizes, uniform, samples, out);
}

int fenchel_sequence_k_best(const double* scores, int64_t count, int64_t parts,
                            const int64_t* layout, const int64_t* sizes, int64_t how_many,
                            int32_t* out, double* values) {
  return kernels().sequence_k_best(scores, count, parts, layout, sizes, how_many, out, values);
}

int fenchel_tree_sums(int projective, const double* scores, const double* direction, int64_t count,
                      int64_t parts, const int64_t* layout, const int64_t* sizes, double* value,
                      double* marginals) {
  return kernels().tree_sums(projective, scores, direction, count, parts, layout, sizes, value,
                             marginals);
}

int fenchel_alignment_smoothed(int omega, double gamma, const double* scores, int64_t count,
                               int64_t parts, const int64_t* layout, const int64_t* sizes,
                               double* values, double* gradients) {
  if (!is_omega(omega)) return FENCHEL_OUT_OF_RANGE;
  return kernels().alignment_smoothed(omega, gamma, scores, count, parts, layout, sizes, values,
                                      gradients);
}

int fenchel_alignment_product(int omega, double gamma, const double* scores,
                              const double* directions, int64_t count, int64_t parts,
                              const int64_t* layout, const int64_t* sizes, double* out) {
  if (!is_omega(omega)) return FENCHEL_OUT_OF_RANGE;
  return kernels().alignment_product(omega, gamma, scores, directions, count, parts, layout, sizes,
                                     out);
}
