// Entmax of every row: short rows several at a time, one in each lane; long ones one by one.
#pragma once

#include "../entmax_backward.h"
#include "../entmax_lanes.h"
#include "../entmax_row.h"
#include "../rows.h"

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

}  // namespace FENCHEL_ISA
}  // namespace fenchel
