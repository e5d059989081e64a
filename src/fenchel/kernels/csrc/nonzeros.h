// The nonzeros of entmax, row by row, as lists: found, collected, written out.
#pragma once

#include <algorithm>
#include <cstdlib>

#include "entmax_lanes.h"
#include "entmax_row.h"
#include "rows.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Appends the nonzeros of a row to a part; false when memory is out.
template <class T>
bool append_row(const ListedRow<T>& row, SparsePart<T>* part) {
  if (row.count == 0) return true;  // there may be no memory yet to copy nothing to
  const int64_t needed = part->count + row.count;
  if (needed > part->capacity) {
    const int64_t capacity = std::max<int64_t>({1024, 2 * part->capacity, needed});
    void* indices = std::realloc(part->indices, capacity * sizeof(int32_t));
    if (indices == nullptr) return false;
    part->indices = static_cast<int32_t*>(indices);
    void* values = std::realloc(part->values, capacity * sizeof(T));
    if (values == nullptr) return false;
    part->values = static_cast<T*>(values);
    part->capacity = capacity;
  }
  std::memcpy(part->indices + part->count, row.indices, row.count * sizeof(int32_t));
  std::memcpy(part->values + part->count, row.values, row.count * sizeof(T));
  part->count = needed;
  return true;
}

// Calls work(row, alpha, nonzeros, part) for every row (contiguous, in order, dealt to the parts in
// order, so that the parts joined are the rows in order) until it says false: memory is out. Rows
// that `wanted` does not name are skipped.
template <class T, class Wanted, class Work>
int for_nonzeros(const T* x, const Layout& at, int n_parts, const Wanted& wanted,
                 const Work& work) {
  const int64_t rows = at.rows(), n = at.n;
  const bool is_short = n <= kShortRow;
  const size_t listed = (RowScratch<T>::bytes(n) + 63) / 64 * 64;
  const size_t dense = (kLanes<T> * n * sizeof(T) + 63) / 64 * 64;
  const size_t bytes = is_short ? listed + dense + lane_scratch_bytes<T>(n) : listed;
  const ShortRows<T> shared(n);
  return for_chunks(n_parts, 1, n_parts, [&](int64_t at_part, int64_t, Worker& worker) {
    const int part = static_cast<int>(at_part);
    const Scratch scratch(bytes);
    void* const memory = scratch.data();
    if (memory == nullptr) return worker.fail(FENCHEL_NO_MEMORY);
    const RowScratch<T> mine(memory, n);
    const int64_t first = rows * part / n_parts, last = rows * (part + 1) / n_parts;
    const auto finish = [&](int64_t row, ListedRow<T>& list) {
      return work(row, at.parameter_of(row), list, part);
    };
    if (is_short) {  // the same path as the dense map: the same digits
      T* group = reinterpret_cast<T*>(static_cast<char*>(memory) + listed);
      void* rest = static_cast<char*>(memory) + listed + dense;
      for (int64_t row = first; row < last; row += kLanes<T>) {
        if (worker.stop(kLanes<T> * n)) return;
        const int count = static_cast<int>(std::min<int64_t>(kLanes<T>, last - row));
        const double* parameter = at.parameter + row * at.parameter_stride;
        const Layout rows_here{count, n, 1, parameter, at.parameter_stride};
        entmax_group(x + row * n, group, rows_here, shared, 0, count, rest);
        for (int i = 0; i < count; ++i) {
          if (!wanted(row + i)) continue;
          ListedRow<T> list(mine, n);
          list.list(group + i * n);
          if (!finish(row + i, list)) return worker.fail(FENCHEL_NO_MEMORY);
        }
      }
      return;
    }
    for (int64_t row = first; row < last; ++row) {
      if (worker.stop(n)) return;
      if (!wanted(row)) continue;
      ListedRow<T> list(mine, n);
      entmax_row(x + row * n, n, at.parameter_of(row), list, mine);
      if (!finish(row, list)) return worker.fail(FENCHEL_NO_MEMORY);
    }
  });
}

// Listed rows, each times its own scale, as dense rows.
template <class T>
int list_to_dense(const T* scale, const int64_t* starts, const int32_t* indices, const T* values,
                  T* out, int64_t rows, int64_t n) {
  ask_for_huge_pages(out, rows * n * static_cast<int64_t>(sizeof(T)));
  return for_shares(rows, threads_for(rows * n), [&](int64_t row, int64_t last, Worker& worker) {
    for (; row < last && !worker.stop(n); ++row) {
      T* dense = out + row * n;
      std::memset(dense, 0, n * sizeof(T));
      for (int64_t i = starts[row]; i < starts[row + 1]; ++i) {
        dense[indices[i]] = scale[row] * values[i];
      }
    }
  });
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
