// Products of listed (sparse) rows with dense matrices: the sums touch only rows that are named.
#pragma once

#include <algorithm>
#include <cstring>

#include "rows.h"
#include "simd.h"

namespace fenchel {
namespace FENCHEL_ISA {

// out = sum over k of coefficient_k * matrix[index_k], d wide, in registers a panel at a time.
template <class T>
inline void weighted_sum(const int32_t* indices, const T* values, int64_t count, T scale,
                         const T* matrix, int64_t stride, int64_t d, T* out) {
  constexpr int lanes = kLanes<T>;
  constexpr int kPanel = 8;
  int64_t c = 0;
  for (; c + kPanel * lanes <= d; c += kPanel * lanes) {
    Vec<T> sum[kPanel] = {};
    for (int64_t k = 0; k < count; ++k) {
      const T* row = matrix + indices[k] * stride + c;
      const Vec<T> value = splat(values[k]);
      for (int v = 0; v < kPanel; ++v) sum[v] += value * load(row + v * lanes);
    }
    for (int v = 0; v < kPanel; ++v) store(out + c + v * lanes, sum[v] * scale);
  }
  for (; c < d; c += lanes) {
    const int part = static_cast<int>(std::min<int64_t>(lanes, d - c));
    Vec<T> sum = splat(T(0));
    for (int64_t k = 0; k < count; ++k) {
      const T* row = matrix + indices[k] * stride + c;
      sum += splat(values[k]) * (part == lanes ? load(row) : load_part(row, part, T(0)));
    }
    if (part == lanes) {
      store(out + c, sum * scale);
    } else {
      store_part(out + c, sum * scale, part);
    }
  }
}

// out[i] = scale[i] * sum over the list of row i of value * matrix[index]; without scale, 1.
template <class T>
int list_times_matrix(const T* scale, const int64_t* starts, const int32_t* indices,
                      const T* values, const T* matrix, T* out, int64_t rows, int64_t d) {
  ask_for_huge_pages(out, rows * d * static_cast<int64_t>(sizeof(T)));
  const int threads = threads_for((starts[rows] - starts[0] + rows) * d);
  return for_chunks(rows, 16, threads, [&](int64_t row, int64_t last, Worker& worker) {
    for (; row < last; ++row) {
      const int64_t first = starts[row], count = starts[row + 1] - first;
      if (worker.stop((count + 1) * d)) return;
      weighted_sum(indices + first, values + first, count, scale == nullptr ? T(1) : scale[row],
                   matrix, d, d, out + row * d);
    }
  });
}

// The lists of the columns from those of the rows (n columns), each value times its row's scale;
// rows in order within a column, so that sums do not depend on the number of threads.
template <class T>
int transpose_list(const T* scale, const int64_t* starts, const int32_t* indices, const T* values,
                   int64_t rows, int64_t n, int64_t* column_starts, int32_t* column_rows,
                   T* column_values) {
  std::memset(column_starts, 0, (n + 1) * sizeof(int64_t));
  return for_shares(rows, 1, [&](int64_t, int64_t, Worker& worker) {
    for (int64_t row = 0; row < rows; ++row) {
      if (worker.stop(starts[row + 1] - starts[row] + 1)) return;
      for (int64_t k = starts[row]; k < starts[row + 1]; ++k) ++column_starts[indices[k] + 1];
    }
    for (int64_t j = 0; j < n; ++j) column_starts[j + 1] += column_starts[j];
    for (int64_t row = 0; row < rows; ++row) {
      if (worker.stop(starts[row + 1] - starts[row] + 1)) return;
      const T factor = scale == nullptr ? T(1) : scale[row];
      for (int64_t k = starts[row]; k < starts[row + 1]; ++k) {
        const int64_t place = column_starts[indices[k]]++;
        column_rows[place] = static_cast<int32_t>(row);
        column_values[place] = factor * values[k];
      }
    }
    // Each start has moved to its column's end: one place back.
    std::memmove(column_starts + 1, column_starts, n * sizeof(int64_t));
    column_starts[0] = 0;
  });
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
