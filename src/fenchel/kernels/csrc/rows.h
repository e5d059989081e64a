// Rows of a tensor in parallel, contiguous or made so, each thread with scratch of its own.
#pragma once

#include <algorithm>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "scratch.h"
#include "simd.h"
#include "stopping.h"
#include "table.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Calls work(first_row, count, memory) for groups of up to `group` rows, each thread with
// `bytes` bytes of scratch.
template <class Work>
int for_rows(const Layout& at, int64_t group, size_t bytes, const Work& work) {
  const int64_t rows = at.rows(), groups = (rows + group - 1) / group;
  return for_shares(groups, threads_for(rows * at.n), [&](int64_t i, int64_t last, Worker& worker) {
    const Scratch memory(bytes);
    if (memory.data() == nullptr) return worker.fail(FENCHEL_NO_MEMORY);
    for (; i < last; ++i) {
      if (worker.stop(group * at.n)) return;
      work(i * group, std::min(group, rows - i * group), memory.data());
    }
  });
}

// Rows whose entries are not adjacent are worked on in groups that share cache lines.
constexpr int64_t kColumnGroup = 16;

// work(row, x_row, out_row, memory) on contiguous rows, copied to and from scratch where needed.
template <class T, class Work>
int for_contiguous_rows(const T* x, T* out, const Layout& at, size_t bytes, const Work& work) {
  const int64_t n = at.n;
  if (at.inner == 1) {
    return for_rows(at, 1, bytes, [&](int64_t row, int64_t, void* memory) {
      work(row, x + row * n, out + row * n, memory);
    });
  }
  const size_t copies = (2 * kColumnGroup * n * sizeof(T) + 63) / 64 * 64;
  return for_rows(at, kColumnGroup, copies + bytes, [&](int64_t row, int64_t count, void* memory) {
    T* in = static_cast<T*>(memory);
    T* result = in + kColumnGroup * n;
    void* rest = static_cast<char*>(memory) + copies;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t r = 0; r < count; ++r) in[r * n + j] = x[at.start(row + r) + j * at.inner];
    }
    for (int64_t r = 0; r < count; ++r) work(row + r, in + r * n, result + r * n, rest);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t r = 0; r < count; ++r) out[at.start(row + r) + j * at.inner] = result[r * n + j];
    }
  });
}

// work(row, p_row, g_row, out_row, memory) on contiguous rows.
template <class T, class Work>
int for_contiguous_pairs(const T* p, const T* g, T* out, const Layout& at, size_t bytes,
                         const Work& work) {
  const int64_t n = at.n;
  if (at.inner == 1) {
    return for_rows(at, 1, bytes, [&](int64_t row, int64_t, void* memory) {
      work(row, p + row * n, g + row * n, out + row * n, memory);
    });
  }
  const size_t copies = (3 * kColumnGroup * n * sizeof(T) + 63) / 64 * 64;
  return for_rows(at, kColumnGroup, copies + bytes, [&](int64_t row, int64_t count, void* memory) {
    T* first = static_cast<T*>(memory);
    T* second = first + kColumnGroup * n;
    T* result = second + kColumnGroup * n;
    void* rest = static_cast<char*>(memory) + copies;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t r = 0; r < count; ++r) {
        const int64_t from = at.start(row + r) + j * at.inner;
        first[r * n + j] = p[from];
        second[r * n + j] = g[from];
      }
    }
    for (int64_t r = 0; r < count; ++r) {
      work(row + r, first + r * n, second + r * n, result + r * n, rest);
    }
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t r = 0; r < count; ++r) out[at.start(row + r) + j * at.inner] = result[r * n + j];
    }
  });
}

// Fresh memory of this size comes from the kernel page by page, at a cost above that of the map;
// huge pages, where the machine grants them on request, take most of that away.
inline void ask_for_huge_pages(void* memory, int64_t bytes) {
#if defined(__linux__)
  constexpr intptr_t kHugePage = intptr_t(1) << 21;
  if (bytes < 4 * kHugePage) return;
  const intptr_t address = reinterpret_cast<intptr_t>(memory);
  const intptr_t first = (address + kHugePage - 1) / kHugePage * kHugePage;
  const intptr_t last = (address + bytes) / kHugePage * kHugePage;
  madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);  // only advice: may fail
#else
  (void)memory;
  (void)bytes;
#endif
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
