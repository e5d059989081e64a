// All kernels, compiled once per instruction set. Each runs over rows in parallel; a row's result
// depends on nothing but the row, its parameter and n.
#include <algorithm>
#include <atomic>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "backward.h"
#include "entmax_lanes.h"
#include "entmax_row.h"
#include "budget.h"
#include "normmax.h"
#include "power_backward.h"
#include "renyimax.h"
#include "scratch.h"
#include "simd.h"
#include "sq_pnorm_max.h"
#include "table.h"

namespace fenchel {
namespace FENCHEL_ISA {

// Calls work(first_row, count, memory) for groups of up to `group` rows, each thread with
// `bytes` bytes of scratch.
template <class Work>
int for_rows(const Layout& at, int64_t group, size_t bytes, const Work& work) {
  const int64_t rows = at.rows(), groups = (rows + group - 1) / group;
  const int threads = threads_for(rows * at.n);
  std::atomic<int> failed{0};
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t i = 0; i < groups; ++i) {
    void* memory = scratch().reserve(bytes);
    if (memory == nullptr) {
      failed = 1;
      continue;
    }
    work(i * group, std::min(group, rows - i * group), memory);
  }
  return failed;
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
        entmax_row(in, at.n, at.parameter_of(row), out, memory);
      });
}

template <class T>
int normmax_forward(const T* x, T* p, const Layout& at) {
  return for_contiguous_rows(x, p, at, at.n * sizeof(double),
                             [&](int64_t row, const T* in, T* out, void* memory) {
                               normmax_row(in, at.n, at.parameter_of(row), out,
                                           static_cast<double*>(memory));
                             });
}

template <class T>
int budget_forward(const T* x, T* p, const Layout& at) {
  return for_contiguous_rows(x, p, at, at.n * sizeof(double),
                             [&](int64_t row, const T* in, T* out, void* memory) {
                               budget_row(in, at.n, at.parameter_of(row), out,
                                          static_cast<double*>(memory));
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
  return for_contiguous_rows(x, p, at, at.n * sizeof(double),
                             [&](int64_t row, const T* in, T* out, void* memory) {
                               renyimax_row(in, at.n, at.parameter_of(row), out,
                                            static_cast<double*>(memory));
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

template <class T>
int entmax_backward(const T* p, const T* g, T* grad_x, double* grad_alpha, const Layout& at) {
  const int64_t n = at.n;
  ask_for_huge_pages(grad_x, at.rows() * n * static_cast<int64_t>(sizeof(T)));
  return for_contiguous_pairs(
      p, g, grad_x, at, (n + 1) * sizeof(int32_t),
      [&](int64_t row, const T* value, const T* grad, T* out, void* memory) {
        const double alpha = at.parameter_of(row);
        int32_t* live = static_cast<int32_t*>(memory);
        switch (kind_of(alpha)) {
          case Kind::kSoftmax:
            entmax_backward_row<T, Kind::kSoftmax>(value, grad, n, alpha, out, live);
            break;
          case Kind::kSquare:
            entmax_backward_row<T, Kind::kSquare>(value, grad, n, alpha, out, live);
            break;
          case Kind::kLinear:
            entmax_backward_row<T, Kind::kLinear>(value, grad, n, alpha, out, live);
            break;
          case Kind::kWhole4:
            entmax_backward_row<T, Kind::kWhole4>(value, grad, n, alpha, out, live);
            break;
          case Kind::kSteep:
            entmax_backward_steep(value, grad, n, alpha, out);
            break;
          case Kind::kArgmax:
          case Kind::kInvalid:  // argmax is flat; a NaN row (alpha below 1) stays NaN
            for (int64_t j = 0; j < n; ++j) out[j] = value[j] - value[j];
            break;
          default:
            entmax_backward_row<T, Kind::kGeneral>(value, grad, n, alpha, out, live);
        }
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

// Appends the nonzeros of p to a part; false when memory is out.
template <class T>
bool append_row(const T* p, int64_t n, SparsePart<T>* part, int64_t* size) {
  const int64_t before = part->count;
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] == 0) continue;
    if (part->count == part->capacity) {
      const int64_t capacity = std::max<int64_t>(1024, 2 * part->capacity);
      void* indices = std::realloc(part->indices, capacity * sizeof(int64_t));
      if (indices == nullptr) return false;
      part->indices = static_cast<int64_t*>(indices);
      void* values = std::realloc(part->values, capacity * sizeof(T));
      if (values == nullptr) return false;
      part->values = static_cast<T*>(values);
      part->capacity = capacity;
    }
    part->indices[part->count] = j;
    part->values[part->count++] = p[j];
  }
  *size = part->count - before;
  return true;
}

// The score above which entries of a row are in the support, from any of them: the largest.
template <class T>
double threshold_of(const T* x, const T* p, int64_t n, double alpha) {
  const int64_t best = std::max_element(p, p + n) - p;
  if (alpha == 1) return -kInf<double>;
  const double a = alpha - 1;
  if (!(alpha < 1e300)) return x[best];
  return static_cast<double>(x[best]) - std::exp(a * std::log(static_cast<double>(p[best]))) / a;
}

// Rows are dealt to parts in order, so the parts joined are the rows in order.
template <class T>
int entmax_sparse(const T* x, const Layout& at, int64_t* sizes, double* threshold,
                  SparsePart<T>* parts, int n_parts) {
  const int64_t rows = at.rows(), n = at.n;
  const size_t dense = (n * sizeof(T) + 63) / 64 * 64;
  const size_t bytes =
      dense + std::max(lane_scratch_bytes<T>(n), RowScratch<T>::bytes(n));
  const ShortRows<T> shared(n);
  std::atomic<int> failed{0};
#pragma omp parallel for num_threads(n_parts) schedule(static) if (n_parts > 1)
  for (int index = 0; index < n_parts; ++index) {
    void* memory = scratch().reserve(bytes);
    if (memory == nullptr) {
      failed = 1;
      continue;
    }
    T* p = static_cast<T*>(memory);
    void* rest = static_cast<char*>(memory) + dense;
    for (int64_t row = rows * index / n_parts; row < rows * (index + 1) / n_parts; ++row) {
      const double alpha = at.parameter_of(row);
      if (n <= kShortRow) {  // the same path as the dense map: the same digits
        const Layout one{1, n, 1, &alpha, 0};
        entmax_group(x + row * n, p, one, shared, 0, 1, rest);
      } else {
        entmax_row(x + row * n, n, alpha, p, rest);
      }
      threshold[row] = threshold_of(x + row * n, p, n, alpha);
      if (!append_row(p, n, &parts[index], &sizes[row])) {
        failed = 1;
        break;
      }
    }
  }
  return failed;
}

template <class T>
constexpr Kernels<T> kernels() {
  return {entmax_forward<T>, entmax_backward<T>, normmax_forward<T>, normmax_backward<T>,
          sq_pnorm_max_forward<T>, sq_pnorm_max_backward<T>, renyimax_forward<T>,
          renyimax_backward<T>,
          budget_forward<T>, budget_backward<T>, entmax_sparse<T>};
}

#define FENCHEL_NAME_(isa) #isa
#define FENCHEL_NAME(isa) FENCHEL_NAME_(isa)
extern const Table table;
const Table table = {FENCHEL_NAME(FENCHEL_ISA), kernels<float>(), kernels<double>()};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
