// The structured kernels, compiled once per instruction set. Each instance is one thread's work;
// its result depends on nothing but the instance.
#include "active_set.h"
#include "alignment_dp.h"
#include "every_oracle.h"  // made by CMake: all files of oracles/
#include "face_product.h"
#include "oracle.h"
#include "sequence_kernels.h"
#include "structures_table.h"
#include "tree_sums.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Calls run(OracleOf<kind>()); the C ABI has seen to it that there is such a kind.
template <class Run>
auto with_oracle(int kind, const Run& run) {
  switch (kind) {
#define FENCHEL_CASE(name) \
  case FENCHEL_##name:     \
    return run(OracleOf<FENCHEL_##name>());
    FENCHEL_KINDS(FENCHEL_CASE)
#undef FENCHEL_CASE
  }
  __builtin_unreachable();
}

int64_t most_parts(int kind, const int64_t* layout) {
  return with_oracle(kind, [&](auto oracle) { return decltype(oracle)::type::most_parts(layout); });
}

int best_parts(int kind, const double* scores, int64_t count, int64_t parts, const int64_t* layout,
               const int64_t* sizes, int64_t size_width, int32_t* out, int64_t most) {
  const Instances at{scores, count, parts, layout, sizes, size_width};
  return with_oracle(kind, [&](auto type) {
    return for_instances(count, count * parts * 16, [&](int64_t i) {
      typename decltype(type)::type oracle(layout, at.size_of(i));
      int32_t* list = out + i * most;
      const int64_t used = oracle.argmax(at.scores_of(i), list);
      if (used == kNone) list[0] = FENCHEL_NO_MEMBER;
      for (int64_t j = used == kNone ? 1 : used; j < most; ++j) list[j] = FENCHEL_NO_PART;
    });
  });
}

int active_set(int kind, const double* scores, int64_t count, int64_t parts, int64_t n_unary,
               const int64_t* layout, const int64_t* sizes, int64_t size_width, int64_t max_iter,
               double tol, int complete, double* means, double* gap, int64_t* iterations,
               int64_t* status, Face* faces) {
  const Instances at{scores, count, parts, layout, sizes, size_width};
  return with_oracle(kind, [&](auto type) {
    return for_instances(count, count * parts * 256, [&](int64_t i) {
      ActiveSet<typename decltype(type)::type> solver(at.scores_of(i), parts, n_unary, layout,
                                                      at.size_of(i));
      const Outcome outcome = solver.solve(max_iter, tol, complete != 0);
      gap[i] = outcome.gap;
      iterations[i] = outcome.iterations;
      status[i] = outcome.status;
      std::fill(means + i * parts, means + (i + 1) * parts, 0.0);
      solver.write_means(means + i * parts);
      solver.keep(faces[i]);
    });
  });
}

int alignment_smoothed(int omega, double gamma, const double* scores, int64_t count, int64_t parts,
                       const int64_t* layout, const int64_t* sizes, double* values,
                       double* gradients) {
  const Instances at{scores, count, parts, layout, sizes, 2};
  return omega == FENCHEL_ENTROPY ? alignment_values<EntropyMax>(at, gamma, values, gradients)
                                  : alignment_values<SquaredMax>(at, gamma, values, gradients);
}

int alignment_product(int omega, double gamma, const double* scores, const double* directions,
                      int64_t count, int64_t parts, const int64_t* layout, const int64_t* sizes,
                      double* out) {
  const Instances at{scores, count, parts, layout, sizes, 2};
  return omega == FENCHEL_ENTROPY ? alignment_products<EntropyMax>(at, directions, gamma, out)
                                  : alignment_products<SquaredMax>(at, directions, gamma, out);
}

constexpr StructureKernels make_kernels() {
  StructureKernels made{};
#define FENCHEL_ENTER(name) made.name = name;
  FENCHEL_STRUCTURE_KERNELS(FENCHEL_ENTER)
#undef FENCHEL_ENTER
  made.active_set = active_set;
  return made;
}

extern const StructureKernels structure_kernels;
constexpr StructureKernels structure_kernels = make_kernels();

}  // namespace FENCHEL_ISA
}  // namespace fenchel
