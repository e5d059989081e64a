// All kernels, compiled once per instruction set. Each runs over rows in parallel; a row's result
// depends on nothing but the row, its parameter and n.
#include "attention.h"
#include "backward.h"
#include "budget.h"
#include "entmax_lanes.h"
#include "entmax_loss.h"
#include "entmax_row.h"
#include "groups.h"
#include "list_products.h"
#include "nonzeros.h"
#include "normmax.h"
#include "power_backward.h"
#include "renyimax.h"
#include "rows.h"
#include "simd.h"
#include "sq_pnorm_max.h"
#include "table.h"

namespace fenchel {
namespace FENCHEL_ISA {

template <class T>
int entmax_forward(const T* x, T* p, const Layout& at) {
  ask_for_huge_pages(p, at.rows() * at.n * static_cast<int64_t>(sizeof(T)));
  if (at.n <= kShortRow) {
    const ShortRows<T> shared(at.n);
    return for_rows(at, kLanes<T>, lane_scratch_bytes<T>(at.n),
                    [&](int64_t row, int64_t count, void* memory) {
                      entmax_group(x, p, at, shared, row, static_cast<int>(count), memory);
                    });
  }
  return for_contiguous_rows(
      x, p, at, RowScratch<T>::bytes(at.n), [&](int64_t row, const T* in, T* out, void* memory) {
        DenseRow<T> dense{out, at.n};
        entmax_row(in, at.n, at.parameter_of(row), dense, RowScratch<T>(memory, at.n));
      });
}

template <class T>
int normmax_forward(const T* x, T* p, const Layout& at) {
  return for_contiguous_rows(
      x, p, at, at.n * sizeof(double), [&](int64_t row, const T* in, T* out, void* memory) {
        normmax_row(in, at.n, at.parameter_of(row), out, static_cast<double*>(memory));
      });
}

template <class T>
int budget_forward(const T* x, T* p, const Layout& at) {
  return for_contiguous_rows(
      x, p, at, at.n * sizeof(double), [&](int64_t row, const T* in, T* out, void* memory) {
        budget_row(in, at.n, at.parameter_of(row), out, static_cast<double*>(memory));
      });
}

template <class T>
int sq_pnorm_max_forward(const T* x, T* p, const Layout& at) {
  return for_contiguous_rows(x, p, at, squared_norm_scratch_bytes(at.n),
                             [&](int64_t row, const T* in, T* out, void* memory) {
                               sq_pnorm_max_row(in, at.n, at.parameter_of(row), out,
                                                static_cast<double*>(memory));
                             });
}

template <class T>
int renyimax_forward(const T* x, T* p, const Layout& at) {
  return for_contiguous_rows(
      x, p, at, at.n * sizeof(double), [&](int64_t row, const T* in, T* out, void* memory) {
        renyimax_row(in, at.n, at.parameter_of(row), out, static_cast<double*>(memory));
      });
}

template <class T>
int entmax_backward(const T* p, const T* g, T* grad_x, double* grad_alpha, const Layout& at) {
  const int64_t n = at.n;
  ask_for_huge_pages(grad_x, at.rows() * n * static_cast<int64_t>(sizeof(T)));
  return for_contiguous_pairs(
      p, g, grad_x, at, (n + 1) * sizeof(int32_t),
      [&](int64_t row, const T* value, const T* grad, T* out, void* memory) {
        const double alpha = at.parameter_of(row);
        entmax_backward_any(value, grad, n, alpha, out, static_cast<int32_t*>(memory));
        if (grad_alpha != nullptr) grad_alpha[row] = entmax_grad_alpha(value, grad, n, alpha);
      });
}

template <class T>
int normmax_backward(const T* p, const T* g, T* grad_x, double* grad_alpha, const Layout& at) {
  return for_contiguous_pairs(
      p, g, grad_x, at, 0, [&](int64_t row, const T* value, const T* grad, T* out, void*) {
        normmax_backward_row(value, grad, at.n, at.parameter_of(row), out,
                             grad_alpha == nullptr ? nullptr : grad_alpha + row);
      });
}

template <class T>
int budget_backward(const T* p, const T* g, T* grad_x, double* grad_k, const Layout& at) {
  return for_contiguous_pairs(
      p, g, grad_x, at, 0, [&](int64_t row, const T* value, const T* grad, T* out, void*) {
        budget_backward_row(value, grad, at.n, out, grad_k == nullptr ? nullptr : grad_k + row);
      });
}

// These two parameters are numbers and have no gradient: NaN, if asked for one.
template <class T>
int sq_pnorm_max_backward(const T* p, const T* g, T* grad_x, double* grad_q, const Layout& at) {
  return for_contiguous_pairs(
      p, g, grad_x, at, at.n * sizeof(double),
      [&](int64_t row, const T* value, const T* grad, T* out, void* memory) {
        sq_pnorm_max_backward_row(value, grad, at.n, at.parameter_of(row), out,
                                  static_cast<double*>(memory));
        if (grad_q != nullptr) grad_q[row] = kNaN<double>;
      });
}

template <class T>
int renyimax_backward(const T* p, const T* g, T* grad_x, double* grad_beta, const Layout& at) {
  return for_contiguous_pairs(
      p, g, grad_x, at, at.n * sizeof(double),
      [&](int64_t row, const T* value, const T* grad, T* out, void* memory) {
        renyimax_backward_row(value, grad, at.n, at.parameter_of(row), out,
                              static_cast<double*>(memory));
        if (grad_beta != nullptr) grad_beta[row] = kNaN<double>;
      });
}

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
    groups_row(static_cast<Groups>(kind), x + row * n, n, at.parameter_of(row), p + row * n,
               group + row * n, slope == nullptr ? nullptr : slope + row * n, memory);
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
constexpr Kernels<T> kernels() {
  return {entmax_forward<T>,    entmax_backward<T>,         normmax_forward<T>,
          normmax_backward<T>,  sq_pnorm_max_forward<T>,    sq_pnorm_max_backward<T>,
          renyimax_forward<T>,  renyimax_backward<T>,       budget_forward<T>,
          budget_backward<T>,   entmax_sparse<T>,           entmax_loss<T>,
          list_to_dense<T>,     list_times_matrix<T>,       transpose_list<T>,
          attention_forward<T>, attention_backward_rows<T>, attention_backward_columns<T>,
          groups_forward<T>,    groups_backward<T>,         attention_output<T>};
}

#define FENCHEL_NAME_(isa) #isa
#define FENCHEL_NAME(isa) FENCHEL_NAME_(isa)
extern const Table table;
const Table table = {FENCHEL_NAME(FENCHEL_ISA), kernels<float>(), kernels<double>()};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
