// The C ABI of the kernels on rows: checks what it can, and hands every call to the table of the
// instruction set.
#include "fenchel.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "table.h"

namespace fenchel {

namespace {

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
  if (result == nullptr) return FENCHEL_NO_MEMORY;
  result->n_parts = n_parts;
  const int status = find(result->parts, n_parts);
  if (status != FENCHEL_DONE) {
    release(result);
    return status;
  }
  starts[0] = 0;
  for (int64_t row = 0; row < rows; ++row) starts[row + 1] = starts[row] + sizes[row];
  *handle = result;
  return FENCHEL_DONE;
}

// Whether no class is past the end of its row; a negative one is ignored.
bool classes_in_range(const int64_t* target, int64_t rows, int64_t n) {
  bool fits = true;
  for (int64_t row = 0; row < rows; ++row) fits &= target[row] < n;
  return fits;
}

bool is_groups(int kind) { return kind == FENCHEL_FUSEDMAX || kind == FENCHEL_OSCARMAX; }

AttentionShape attention_shape(const int64_t* shape, double scale) {
  AttentionShape at;
  at.batch = shape[FENCHEL_SHAPE_BATCH];
  at.heads = shape[FENCHEL_SHAPE_HEADS];
  at.kv_heads = shape[FENCHEL_SHAPE_KV_HEADS];
  at.queries = shape[FENCHEL_SHAPE_QUERIES];
  at.keys = shape[FENCHEL_SHAPE_KEYS];
  at.d = shape[FENCHEL_SHAPE_D];
  at.d_value = shape[FENCHEL_SHAPE_D_VALUE];
  at.causal = shape[FENCHEL_SHAPE_CAUSAL];
  at.mask_kind = shape[FENCHEL_SHAPE_MASK_KIND];
  std::copy_n(shape + FENCHEL_SHAPE_MASK_STRIDES, 4, at.mask_strides);
  at.scale = scale;
  return at;
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

}  // namespace fenchel

using fenchel::Layout;

#define FENCHEL_DEFINE_MAP_OF(map, suffix, T)                                                     \
  int fenchel_##map##_forward_##suffix(const T* x, T* p, int64_t outer, int64_t n, int64_t inner, \
                                       const double* parameter, int64_t parameter_stride) {       \
    return fenchel::kernels<T>().map##_forward(                                                   \
        x, p, Layout{outer, n, inner, parameter, parameter_stride});                              \
  }                                                                                               \
  int fenchel_##map##_backward_##suffix(                                                          \
      const T* p, const T* grad, T* grad_x, double* grad_parameter, int64_t outer, int64_t n,     \
      int64_t inner, const double* parameter, int64_t parameter_stride) {                         \
    return fenchel::kernels<T>().map##_backward(                                                  \
        p, grad, grad_x, grad_parameter, Layout{outer, n, inner, parameter, parameter_stride});   \
  }

#define FENCHEL_DEFINE_SPARSE(suffix, T)                                                       \
  int fenchel_entmax_sparse_##suffix(const T* x, int64_t outer, int64_t n, int64_t inner,      \
                                     const double* parameter, int64_t parameter_stride,        \
                                     int64_t* sizes, int64_t* starts, double* threshold,       \
                                     void** handle) {                                          \
    const Layout at{outer, n, inner, parameter, parameter_stride};                             \
    const auto find = [&](fenchel::SparsePart<T>* parts, int n_parts) {                        \
      return fenchel::kernels<T>().entmax_sparse(x, at, sizes, threshold, parts, n_parts);     \
    };                                                                                         \
    return fenchel::keep_nonzeros<T>(at.rows(), fenchel::threads_for(at.rows() * at.n), sizes, \
                                     starts, handle, find);                                    \
  }                                                                                            \
  void fenchel_sparse_take_##suffix(void* handle, int64_t* indices, T* values) {               \
    fenchel::take<T>(handle, indices, values);                                                 \
  }                                                                                            \
  void fenchel_sparse_take32_##suffix(void* handle, int32_t* indices, T* values) {             \
    fenchel::take<T>(handle, indices, values);                                                 \
  }

#define FENCHEL_DEFINE_LOSS(suffix, T)                                                          \
  int fenchel_entmax_loss_##suffix(const T* x, int64_t outer, int64_t n, int64_t inner,         \
                                   const double* parameter, int64_t parameter_stride,           \
                                   const int64_t* target, T* loss, double* slope, int64_t most, \
                                   int64_t* sizes, int64_t* starts, void** handle) {            \
    const Layout at{outer, n, inner, parameter, parameter_stride};                              \
    if (!fenchel::classes_in_range(target, at.rows(), n)) return FENCHEL_OUT_OF_RANGE;          \
    const auto find = [&](fenchel::SparsePart<T>* parts, int n_parts) {                         \
      return fenchel::kernels<T>().entmax_loss(x, at, target, loss, slope, sizes, most, parts,  \
                                               n_parts);                                        \
    };                                                                                          \
    if (handle == nullptr) return find(nullptr, fenchel::threads_for(at.rows() * at.n));        \
    return fenchel::keep_nonzeros<T>(at.rows(), fenchel::threads_for(at.rows() * at.n), sizes,  \
                                     starts, handle, find);                                     \
  }

#define FENCHEL_DEFINE_LISTS(suffix, T)                                                            \
  int fenchel_list_to_dense_##suffix(const T* scale, const int64_t* starts,                        \
                                     const int32_t* indices, const T* values, T* out,              \
                                     int64_t rows, int64_t n) {                                    \
    return fenchel::kernels<T>().list_to_dense(scale, starts, indices, values, out, rows, n);      \
  }                                                                                                \
  int fenchel_list_times_matrix_##suffix(const T* scale, const int64_t* starts,                    \
                                         const int32_t* indices, const T* values, const T* matrix, \
                                         T* out, int64_t rows, int64_t d) {                        \
    return fenchel::kernels<T>().list_times_matrix(scale, starts, indices, values, matrix, out,    \
                                                   rows, d);                                       \
  }                                                                                                \
  int fenchel_transpose_list_##suffix(                                                             \
      const T* scale, const int64_t* starts, const int32_t* indices, const T* values,              \
      int64_t rows, int64_t n, int64_t* column_starts, int32_t* column_rows, T* column_values) {   \
    return fenchel::kernels<T>().transpose_list(scale, starts, indices, values, rows, n,           \
                                                column_starts, column_rows, column_values);        \
  }

#define FENCHEL_DEFINE_ATTENTION(suffix, T)                                                    \
  int fenchel_attention_forward_##suffix(const T* query, const T* key, const T* value,         \
                                         const void* mask, const int64_t* shape, double scale, \
                                         const double* alpha, int64_t alpha_stride, T* out,    \
                                         int64_t* sizes, int64_t* starts, void** handle) {     \
    const auto at = fenchel::attention_shape(shape, scale);                                    \
    return fenchel::attend<T>(query, key, value, mask, at, alpha, alpha_stride, out, sizes,    \
                              starts, handle);                                                 \
  }                                                                                            \
  int fenchel_attention_backward_##suffix(                                                     \
      const T* query, const T* key, const T* value, const T* grad_out, const int64_t* shape,   \
      double scale, const double* alpha, int64_t alpha_stride, const int64_t* starts,          \
      const int32_t* indices, const T* p, const T* factor, T* grad_scores, T* grad_query,      \
      T* grad_key, T* grad_value, double* grad_alpha) {                                        \
    const auto at = fenchel::attention_shape(shape, scale);                                    \
    const auto& run = fenchel::kernels<T>();                                                   \
    const int status =                                                                         \
        run.attention_backward_rows(key, value, grad_out, at, alpha, alpha_stride, starts,     \
                                    indices, p, factor, grad_query, grad_scores, grad_alpha);  \
    if (status != FENCHEL_DONE) return status;                                                 \
    return run.attention_backward_columns(query, grad_out, at, starts, indices, p, factor,     \
                                          grad_scores, grad_key, grad_value);                  \
  }                                                                                            \
  int fenchel_attention_output_##suffix(const T* value, const int64_t* shape,                  \
                                        const int64_t* starts, const int32_t* indices,         \
                                        const T* weights, T* out) {                            \
    return fenchel::kernels<T>().attention_output(value, fenchel::attention_shape(shape, 1.0), \
                                                  starts, indices, weights, out);              \
  }

#define FENCHEL_DEFINE_GROUPS(suffix, T)                                                           \
  int fenchel_groups_forward_##suffix(int kind, const T* x, T* p, int32_t* group, T* slope,        \
                                      int64_t rows, int64_t n, const double* lambda,               \
                                      int64_t lambda_stride) {                                     \
    if (!fenchel::is_groups(kind)) return FENCHEL_OUT_OF_RANGE;                                    \
    return fenchel::kernels<T>().groups_forward(kind, x, p, group, slope,                          \
                                                Layout{rows, n, 1, lambda, lambda_stride});        \
  }                                                                                                \
  int fenchel_groups_backward_##suffix(const T* p, const int32_t* group, const T* grad, T* grad_x, \
                                       int64_t rows, int64_t n) {                                  \
    return fenchel::kernels<T>().groups_backward(p, group, grad, grad_x,                           \
                                                 Layout{rows, n, 1, nullptr, 0});                  \
  }

#define FENCHEL_DEFINE_MAP(map, ...)     \
  FENCHEL_DEFINE_MAP_OF(map, f32, float) \
  FENCHEL_DEFINE_MAP_OF(map, f64, double)
FENCHEL_MAPS(FENCHEL_DEFINE_MAP)
FENCHEL_DTYPES(FENCHEL_DEFINE_SPARSE)
FENCHEL_DTYPES(FENCHEL_DEFINE_LOSS)
FENCHEL_DTYPES(FENCHEL_DEFINE_LISTS)
FENCHEL_DTYPES(FENCHEL_DEFINE_ATTENTION)
FENCHEL_DTYPES(FENCHEL_DEFINE_GROUPS)
