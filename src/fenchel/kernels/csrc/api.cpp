// The C ABI: picks an instruction set when the library is loaded and hands every call to it.
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

#include "instruction_set.h"
#include "stopping.h"
#include "table.h"

namespace fenchel {

namespace baseline {
extern const Table table;
}
namespace avx2 {
extern const Table table;
}
namespace avx512 {
extern const Table table;
}

namespace {

const Table* choose_table() {
  switch (instruction_set()) {
#if defined(FENCHEL_HAVE_AVX512)
    case InstructionSet::avx512:
      return &avx512::table;
#endif
#if defined(FENCHEL_HAVE_AVX2)
    case InstructionSet::avx2:
      return &avx2::table;
#endif
    default:
      return &baseline::table;
  }
}

const Table& table() {
  static const Table* const chosen = choose_table();
  return *chosen;
}

bool forked = false;
const int watch_forks = [] {
#if defined(__unix__) || defined(__APPLE__)
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
#endif
  return 0;
}();

template <class T>
const Kernels<T>& kernels();
template <>
const Kernels<float>& kernels() {
  return table().f32;
}
template <>
const Kernels<double>& kernels() {
  return table().f64;
}

// Nonzeros found by entmax_sparse, kept until they are taken.
template <class T>
struct SparseResult {
  int n_parts;
  SparsePart<T> parts[1];
};

template <class T>
void release(SparseResult<T>* result) {
  for (int i = 0; i < result->n_parts; ++i) {
    std::free(result->parts[i].indices);
    std::free(result->parts[i].values);
  }
  std::free(result);
}

// Runs `find(parts, n_parts)` and keeps what it finds until it is taken.
template <class T, class Find>
int keep_nonzeros(int64_t rows, int n_parts, const int64_t* sizes, int64_t* starts, void** handle,
                  const Find& find) {
  const size_t bytes = sizeof(SparseResult<T>) + n_parts * sizeof(SparsePart<T>);
  auto* result = static_cast<SparseResult<T>*>(std::calloc(1, bytes));
  if (result == nullptr) return kNoMemory;
  result->n_parts = n_parts;
  const int status = find(result->parts, n_parts);
  if (status != kDone) {
    release(result);
    return status;
  }
  starts[0] = 0;
  for (int64_t row = 0; row < rows; ++row) starts[row + 1] = starts[row] + sizes[row];
  *handle = result;
  return 0;
}

// Whether no class is past the end of its row; a negative one is ignored.
bool classes_in_range(const int64_t* target, int64_t rows, int64_t n) {
  bool fits = true;
  for (int64_t row = 0; row < rows; ++row) fits &= target[row] < n;
  return fits;
}

AttentionShape attention_shape(const int64_t* n, double scale) {
  return {n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8], {n[9], n[10], n[11], n[12]}, scale};
}

template <class T>
int attend(const T* query, const T* key, const T* value, const void* mask, const AttentionShape& at,
           const double* alpha, int64_t alpha_stride, T* out, int64_t* sizes, int64_t* starts,
           void** handle) {
  const int64_t rows = at.batch * at.heads * at.queries;
  const int64_t work = rows * at.keys * at.d;
  // More parts than threads: causal rows differ in length.
  const int64_t wanted = threads_for(work) == 1 ? 1 : 16 * threads_for(work);
  const int parts_count = static_cast<int>(std::max<int64_t>(1, std::min(wanted, rows)));
  const auto find = [&](SparsePart<T>* parts, int n_parts) {
    return kernels<T>().attention_forward(query, key, value, mask, at, alpha, alpha_stride, out,
                                          sizes, parts, n_parts);
  };
  if (handle == nullptr) return find(nullptr, parts_count);
  return keep_nonzeros<T>(rows, parts_count, sizes, starts, handle, find);
}

template <class T, class Index>
void take(void* handle, Index* indices, T* values) {
  auto* result = static_cast<SparseResult<T>*>(handle);
  for (int i = 0; i < result->n_parts; ++i) {
    const SparsePart<T>& part = result->parts[i];
    if (part.count == 0 || indices == nullptr) continue;  // without arrays: only release
    std::copy(part.indices, part.indices + part.count, indices);
    std::memcpy(values, part.values, part.count * sizeof(T));
    indices += part.count;
    values += part.count;
  }
  release(result);
}

}  // namespace

int threads_for(int64_t entries) {
  // Waking a thread costs about as much as this many entries.
  constexpr int64_t kEntriesPerThread = 16384;
  if (forked || omp_in_parallel()) return 1;
  const int64_t useful = std::max<int64_t>(1, entries / kEntriesPerThread);
  return static_cast<int>(std::min<int64_t>(omp_get_max_threads(), useful));
}

namespace {

constexpr size_t kMegabyte = size_t(1) << 20;
std::atomic<size_t> kept_bytes{0};

// Blocks up to this size are not worth counting.
size_t counted(size_t bytes) { return bytes <= kMegabyte ? 0 : bytes; }

}  // namespace

bool may_keep(size_t bytes) {
  const size_t more = counted(bytes);
  if (more == 0) return true;
  if (bytes > 64 * kMegabyte) return false;
  if (kept_bytes.fetch_add(more, std::memory_order_relaxed) + more <= 128 * kMegabyte) return true;
  kept_bytes.fetch_sub(more, std::memory_order_relaxed);
  return false;
}

void give_up(size_t bytes) {
  if (counted(bytes) != 0) kept_bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace fenchel

using fenchel::Layout;

#define FENCHEL_API extern "C" __attribute__((visibility("default")))

FENCHEL_API int fenchel_abi_version() { return 3; }
FENCHEL_API const char* fenchel_instruction_set() { return fenchel::table().name; }

#define FENCHEL_MAP(op, suffix, T)                                                              \
  FENCHEL_API int fenchel_##op##_forward_##suffix(const T* x, T* p, int64_t outer, int64_t n,   \
                                                  int64_t inner, const double* parameter,       \
                                                  int64_t parameter_stride) {                   \
    return fenchel::kernels<T>().op##_forward(                                                  \
        x, p, Layout{outer, n, inner, parameter, parameter_stride});                            \
  }                                                                                             \
  FENCHEL_API int fenchel_##op##_backward_##suffix(                                             \
      const T* p, const T* grad, T* grad_x, double* grad_parameter, int64_t outer, int64_t n,   \
      int64_t inner, const double* parameter, int64_t parameter_stride) {                       \
    return fenchel::kernels<T>().op##_backward(                                                 \
        p, grad, grad_x, grad_parameter, Layout{outer, n, inner, parameter, parameter_stride}); \
  }

#define FENCHEL_SPARSE(suffix, T)                                                              \
  FENCHEL_API int fenchel_entmax_sparse_##suffix(                                              \
      const T* x, int64_t outer, int64_t n, int64_t inner, const double* parameter,            \
      int64_t parameter_stride, int64_t* sizes, int64_t* starts, double* threshold,            \
      void** handle) {                                                                         \
    const Layout at{outer, n, inner, parameter, parameter_stride};                             \
    const auto find = [&](fenchel::SparsePart<T>* parts, int n_parts) {                        \
      return fenchel::kernels<T>().entmax_sparse(x, at, sizes, threshold, parts, n_parts);     \
    };                                                                                         \
    return fenchel::keep_nonzeros<T>(at.rows(), fenchel::threads_for(at.rows() * at.n), sizes, \
                                     starts, handle, find);                                    \
  }                                                                                            \
  FENCHEL_API void fenchel_sparse_take_##suffix(void* handle, int64_t* indices, T* values) {   \
    fenchel::take<T>(handle, indices, values);                                                 \
  }                                                                                            \
  FENCHEL_API void fenchel_sparse_take32_##suffix(void* handle, int32_t* indices, T* values) { \
    fenchel::take<T>(handle, indices, values);                                                 \
  }

// Without `handle` only the losses.
#define FENCHEL_LOSS(suffix, T)                                                                   \
  FENCHEL_API int fenchel_entmax_loss_##suffix(                                                   \
      const T* x, int64_t outer, int64_t n, int64_t inner, const double* parameter,               \
      int64_t parameter_stride, const int64_t* target, T* loss, double* slope, int64_t most,      \
      int64_t* sizes, int64_t* starts, void** handle) {                                           \
    const Layout at{outer, n, inner, parameter, parameter_stride};                                \
    if (!fenchel::classes_in_range(target, at.rows(), n)) return fenchel::kOutOfRange;            \
    const auto find = [&](fenchel::SparsePart<T>* parts, int n_parts) {                           \
      return fenchel::kernels<T>().entmax_loss(x, at, target, loss, slope, sizes, most, parts,    \
                                               n_parts);                                          \
    };                                                                                            \
    if (handle == nullptr) return find(nullptr, fenchel::threads_for(at.rows() * at.n));          \
    return fenchel::keep_nonzeros<T>(at.rows(), fenchel::threads_for(at.rows() * at.n), sizes,    \
                                     starts, handle, find);                                       \
  }                                                                                               \
  FENCHEL_API int fenchel_list_to_dense_##suffix(const T* scale, const int64_t* starts,           \
                                                 const int32_t* indices, const T* values, T* out, \
                                                 int64_t rows, int64_t n) {                       \
    return fenchel::kernels<T>().list_to_dense(scale, starts, indices, values, out, rows, n);     \
  }

#define FENCHEL_PRODUCTS(suffix, T)                                                              \
  FENCHEL_API int fenchel_list_times_matrix_##suffix(                                            \
      const T* scale, const int64_t* starts, const int32_t* indices, const T* values,            \
      const T* matrix, T* out, int64_t rows, int64_t d) {                                        \
    return fenchel::kernels<T>().list_times_matrix(scale, starts, indices, values, matrix, out,  \
                                                   rows, d);                                     \
  }                                                                                              \
  FENCHEL_API int fenchel_transpose_list_##suffix(                                               \
      const T* scale, const int64_t* starts, const int32_t* indices, const T* values,            \
      int64_t rows, int64_t n, int64_t* column_starts, int32_t* column_rows, T* column_values) { \
    return fenchel::kernels<T>().transpose_list(scale, starts, indices, values, rows, n,         \
                                                column_starts, column_rows, column_values);      \
  }

// A shape is 13 integers in the order of AttentionShape and a scale. Without `handle`, no nonzeros.
#define FENCHEL_ATTENTION(suffix, T)                                                               \
  FENCHEL_API int fenchel_attention_forward_##suffix(                                              \
      const T* query, const T* key, const T* value, const void* mask, const int64_t* shape,        \
      double scale, const double* alpha, int64_t alpha_stride, T* out, int64_t* sizes,             \
      int64_t* starts, void** handle) {                                                            \
    const auto at = fenchel::attention_shape(shape, scale);                                        \
    return fenchel::attend<T>(query, key, value, mask, at, alpha, alpha_stride, out, sizes,        \
                              starts, handle);                                                     \
  }                                                                                                \
  FENCHEL_API int fenchel_attention_backward_##suffix(                                             \
      const T* query, const T* key, const T* value, const T* grad_out, const int64_t* shape,       \
      double scale, const double* alpha, int64_t alpha_stride, const int64_t* starts,              \
      const int32_t* indices, const T* p, const T* factor, T* grad_scores, T* grad_query,          \
      T* grad_key, T* grad_value, double* grad_alpha) {                                            \
    const auto at = fenchel::attention_shape(shape, scale);                                        \
    const auto& run = fenchel::kernels<T>();                                                       \
    const int status =                                                                             \
        run.attention_backward_rows(query, key, value, grad_out, at, alpha, alpha_stride, starts,  \
                                    indices, p, factor, grad_query, grad_scores, grad_alpha);      \
    if (status != fenchel::kDone) return status;                                                   \
    return run.attention_backward_columns(query, grad_out, at, starts, indices, p, factor,         \
                                          grad_scores, grad_key, grad_value);                      \
  }                                                                                                \
  FENCHEL_API int fenchel_attention_output_##suffix(const T* value, const int64_t* shape,          \
                                                    const int64_t* starts, const int32_t* indices, \
                                                    const T* weights, T* out) {                    \
    return fenchel::kernels<T>().attention_output(value, fenchel::attention_shape(shape, 1.0),     \
                                                  starts, indices, weights, out);                  \
  }

// kind: 0 fused lasso, 1 OSCAR. Rows are contiguous.
#define FENCHEL_GROUPS(suffix, T)                                                                \
  FENCHEL_API int fenchel_groups_forward_##suffix(int kind, const T* x, T* p, int32_t* group,    \
                                                  T* slope, int64_t rows, int64_t n,             \
                                                  const double* lambda, int64_t lambda_stride) { \
    return fenchel::kernels<T>().groups_forward(kind, x, p, group, slope,                        \
                                                Layout{rows, n, 1, lambda, lambda_stride});      \
  }                                                                                              \
  FENCHEL_API int fenchel_groups_backward_##suffix(                                              \
      const T* p, const int32_t* group, const T* grad, T* grad_x, int64_t rows, int64_t n) {     \
    return fenchel::kernels<T>().groups_backward(p, group, grad, grad_x,                         \
                                                 Layout{rows, n, 1, nullptr, 0});                \
  }

FENCHEL_MAP(entmax, f32, float)
FENCHEL_MAP(entmax, f64, double)
FENCHEL_MAP(normmax, f32, float)
FENCHEL_MAP(normmax, f64, double)
FENCHEL_MAP(budget, f32, float)
FENCHEL_MAP(budget, f64, double)
FENCHEL_MAP(sq_pnorm_max, f32, float)
FENCHEL_MAP(sq_pnorm_max, f64, double)
FENCHEL_MAP(renyimax, f32, float)
FENCHEL_MAP(renyimax, f64, double)
FENCHEL_SPARSE(f32, float)
FENCHEL_SPARSE(f64, double)
FENCHEL_LOSS(f32, float)
FENCHEL_LOSS(f64, double)
FENCHEL_PRODUCTS(f32, float)
FENCHEL_PRODUCTS(f64, double)
FENCHEL_ATTENTION(f32, float)
FENCHEL_ATTENTION(f64, double)
FENCHEL_GROUPS(f32, float)
FENCHEL_GROUPS(f64, double)
