// All kernels, compiled once per instruction set. Each runs over rows in parallel; a row's result
// depends on nothing but the row, its parameter and n.
#include "attention.h"
#include "entmax_loss.h"
#include "every_map.h"  // made by CMake: all files of maps/
#include "groups.h"
#include "list_products.h"
#include "nonzeros.h"
#include "rows.h"
#include "table.h"

namespace fenchel {
namespace FENCHEL_ISA {

extern const StructureKernels structure_kernels;  // of structures_isa.cpp

// The score above which entries of a row are in the support, from any of them: the largest.
template <class T>
double threshold_of(const T* x, const ListedRow<T>& row, double alpha) {
  if (alpha > 0 && alpha <= 1) return -kInf<double>;  // no score is too low
  if (row.count == 0) return kInf<double>;
  const int64_t best = std::max_element(row.values, row.values + row.count) - row.values;
  const double score = x[row.indices[best]], a = alpha - 1;
  if (!(alpha < 1e300)) return score;
  return score - std::exp(a * std::log(static_cast<double>(row.values[best]))) / a;
}

template <class T>
int entmax_sparse(const T* x, const Layout& at, int64_t* sizes, double* threshold,
                  SparsePart<T>* parts, int n_parts) {
  const auto all = [](int64_t) { return true; };
  return for_nonzeros(x, at, n_parts, all,
                      [&](int64_t row, double alpha, const ListedRow<T>& nonzeros, int part) {
                        threshold[row] = threshold_of(x + row * at.n, nonzeros, alpha);
                        sizes[row] = nonzeros.count;
                        return append_row(nonzeros, &parts[part]);
                      });
}

// Losses, and the nonzeros of p - y, as long as there are at most `most` a part (then only their
// sizes). A row with a negative target is ignored. Without sizes, no nonzeros are kept.
template <class T>
int entmax_loss(const T* x, const Layout& at, const int64_t* target, T* loss, double* slope,
                int64_t* sizes, int64_t most, SparsePart<T>* parts, int n_parts) {
  const auto wanted = [&](int64_t row) {
    if (target[row] >= 0) return true;
    loss[row] = 0;
    if (slope != nullptr) slope[row] = 0;
    if (sizes != nullptr) sizes[row] = 0;
    return false;
  };
  return for_nonzeros(
      x, at, n_parts, wanted, [&](int64_t row, double alpha, ListedRow<T>& nonzeros, int part) {
        loss[row] = static_cast<T>(entmax_loss_row(x + row * at.n, nonzeros, target[row], alpha));
        if (slope != nullptr) slope[row] = entmax_loss_slope(nonzeros, alpha);
        if (sizes == nullptr) return true;
        subtract_target(&nonzeros, target[row]);
        sizes[row] = nonzeros.count;
        if (parts[part].count > most) return true;
        return append_row(nonzeros, &parts[part]);
      });
}

template <class T>
int groups_forward(int kind, const T* x, T* p, int32_t* group, T* slope, const Layout& at) {
  const int64_t n = at.n;
  return for_rows(at, 1, GroupScratch::bytes(n), [&](int64_t row, int64_t, void* memory) {
    groups_row(kind, x + row * n, n, at.parameter_of(row), p + row * n, group + row * n,
               slope == nullptr ? nullptr : slope + row * n, memory);
  });
}

template <class T>
int groups_backward(const T* p, const int32_t* group, const T* grad, T* grad_x, const Layout& at) {
  const int64_t n = at.n;
  return for_rows(at, 1, n * (2 * sizeof(double) + sizeof(int32_t)) + 64,
                  [&](int64_t row, int64_t, void* memory) {
                    groups_backward_row(p + row * n, group + row * n, grad + row * n, n,
                                        grad_x + row * n, memory);
                  });
}

template <class T>
constexpr Kernels<T> row_kernels() {
  Kernels<T> filled{};
#define FENCHEL_ENTER(name) filled.name = name<T>;
#define FENCHEL_ENTER_MAP(map, ...) FENCHEL_ENTER(map##_forward) FENCHEL_ENTER(map##_backward)
  FENCHEL_MAPS(FENCHEL_ENTER_MAP)
  FENCHEL_ROW_KERNELS(FENCHEL_ENTER)
#undef FENCHEL_ENTER_MAP
#undef FENCHEL_ENTER
  return filled;
}

#define FENCHEL_NAME_(isa) #isa
#define FENCHEL_NAME(isa) FENCHEL_NAME_(isa)
constexpr Table make_table() {
  Table made{};
  made.name = FENCHEL_NAME(FENCHEL_ISA);
  made.f32 = row_kernels<float>();
  made.f64 = row_kernels<double>();
  made.structures = &structure_kernels;
  return made;
}

extern const Table table;
constexpr Table table = make_table();

}  // namespace FENCHEL_ISA
}  // namespace fenchel
