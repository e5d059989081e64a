// All kernels, compiled once per instruction set. Each runs over rows in parallel; a row's result
// depends on nothing but the row, its parameter and n.
#include <algorithm>
#include <atomic>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "backward.h"
#include "entmax_lanes.h"
#include "entmax_loss.h"
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
        DenseRow<T> dense{out, at.n};
        entmax_row(in, at.n, at.parameter_of(row), dense, RowScratch<T>(memory, at.n));
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

// Appends the nonzeros of a row to a part; false when memory is out.
template <class T>
bool append_row(const ListedRow<T>& row, SparsePart<T>* part) {
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
int for_nonzeros(const T* x, const Layout& at, int n_parts, const Wanted& wanted, const Work& work) {
  const int64_t rows = at.rows(), n = at.n;
  const bool is_short = n <= kShortRow;
  const size_t listed = (RowScratch<T>::bytes(n) + 63) / 64 * 64;
  const size_t dense = (kLanes<T> * n * sizeof(T) + 63) / 64 * 64;
  const size_t bytes = is_short ? listed + dense + lane_scratch_bytes<T>(n) : listed;
  const ShortRows<T> shared(n);
  std::atomic<int> failed{0};
#pragma omp parallel for num_threads(n_parts) schedule(static) if (n_parts > 1)
  for (int part = 0; part < n_parts; ++part) {
    void* memory = scratch().reserve(bytes);
    if (memory == nullptr) {
      failed = 1;
      continue;
    }
    const RowScratch<T> mine(memory, n);
    const int64_t first = rows * part / n_parts, last = rows * (part + 1) / n_parts;
    const auto finish = [&](int64_t row, ListedRow<T>& list) {
      return work(row, at.parameter_of(row), list, part);
    };
    if (is_short) {  // the same path as the dense map: the same digits
      T* group = reinterpret_cast<T*>(static_cast<char*>(memory) + listed);
      void* rest = static_cast<char*>(memory) + listed + dense;
      for (int64_t row = first; row < last && !failed; row += kLanes<T>) {
        const int count = static_cast<int>(std::min<int64_t>(kLanes<T>, last - row));
        const double* parameter = at.parameter + row * at.parameter_stride;
        const Layout rows_here{count, n, 1, parameter, at.parameter_stride};
        entmax_group(x + row * n, group, rows_here, shared, 0, count, rest);
        for (int i = 0; i < count && !failed; ++i) {
          if (!wanted(row + i)) continue;
          ListedRow<T> list(mine, n);
          list.list(group + i * n);
          if (!finish(row + i, list)) failed = 1;
        }
      }
      continue;
    }
    for (int64_t row = first; row < last && !failed; ++row) {
      if (!wanted(row)) continue;
      ListedRow<T> list(mine, n);
      entmax_row(x + row * n, n, at.parameter_of(row), list, mine);
      if (!finish(row, list)) failed = 1;
    }
  }
  return failed;
}

// The score above which entries of a row are in the support, from any of them: the largest.
template <class T>
double threshold_of(const T* x, const ListedRow<T>& row, double alpha) {
  if (alpha == 1) return -kInf<double>;
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

// Losses, and the nonzeros of p - y. A row with a negative target is ignored. Without sizes, no
// nonzeros are kept.
template <class T>
int entmax_loss(const T* x, const Layout& at, const int64_t* target, T* loss, double* slope,
                int64_t* sizes, SparsePart<T>* parts, int n_parts) {
  const auto wanted = [&](int64_t row) {
    if (target[row] >= 0) return true;
    loss[row] = 0;
    if (slope != nullptr) slope[row] = 0;
    if (sizes != nullptr) sizes[row] = 0;
    return false;
  };
  return for_nonzeros(
      x, at, n_parts, wanted,
      [&](int64_t row, double alpha, ListedRow<T>& nonzeros, int part) {
        loss[row] = static_cast<T>(entmax_loss_row(x + row * at.n, nonzeros, target[row], alpha));
        if (slope != nullptr) slope[row] = entmax_loss_slope(nonzeros, alpha);
        if (sizes == nullptr) return true;
        subtract_target(&nonzeros, target[row]);
        sizes[row] = nonzeros.count;
        return append_row(nonzeros, &parts[part]);
      });
}

// Listed rows, each times its own scale, as dense rows.
template <class T>
void list_to_dense(const T* scale, const int64_t* starts, const int32_t* indices, const T* values,
                   T* out, int64_t rows, int64_t n) {
  ask_for_huge_pages(out, rows * n * static_cast<int64_t>(sizeof(T)));
  const int threads = threads_for(rows * n);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
  for (int64_t row = 0; row < rows; ++row) {
    T* dense = out + row * n;
    std::memset(dense, 0, n * sizeof(T));
    for (int64_t i = starts[row]; i < starts[row + 1]; ++i) {
      dense[indices[i]] = scale[row] * values[i];
    }
  }
}

template <class T>
constexpr Kernels<T> kernels() {
  return {entmax_forward<T>, entmax_backward<T>, normmax_forward<T>, normmax_backward<T>,
          sq_pnorm_max_forward<T>, sq_pnorm_max_backward<T>, renyimax_forward<T>,
          renyimax_backward<T>, budget_forward<T>, budget_backward<T>, entmax_sparse<T>,
          entmax_loss<T>, list_to_dense<T>};
}

#define FENCHEL_NAME_(isa) #isa
#define FENCHEL_NAME(isa) FENCHEL_NAME_(isa)
extern const Table table;
const Table table = {FENCHEL_NAME(FENCHEL_ISA), kernels<float>(), kernels<double>()};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
