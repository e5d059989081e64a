// The kernels of one instruction set, as function pointers behind one plain struct.
//
// A tensor is (outer, n, inner), contiguous; a row is the n entries with one (outer, inner) pair,
// and row r = outer_index * inner + inner_index has the parameter[r * parameter_stride] (stride 0
// or 1). Every function returns a fenchel_status.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fenchel.h"

namespace fenchel {

struct Layout {
  int64_t outer, n, inner;
  const double* parameter;
  int64_t parameter_stride;

  int64_t rows() const { return outer * inner; }
  double parameter_of(int64_t row) const { return parameter[row * parameter_stride]; }
  // Where row r begins; its entries are `inner` apart.
  int64_t start(int64_t row) const { return row / inner * n * inner + row % inner; }
};

// Queries, keys and values are (batch, heads, length, width), contiguous; `heads` of queries share
// `kv_heads` of keys and values in equal groups.
struct AttentionShape {
  int64_t batch, heads, kv_heads, queries, keys, d, d_value;
  int64_t causal;     // query i sees keys 0 to i
  int64_t mask_kind;  // of fenchel_mask
  int64_t mask_strides[4];
  double scale;

  int64_t kv_head(int64_t b, int64_t h) const { return b * kv_heads + h / (heads / kv_heads); }
};

// Nonzeros of consecutive rows, as one thread found them; a list in row order.
template <class T>
struct SparsePart {
  int32_t* indices = nullptr;
  T* values = nullptr;
  int64_t count = 0, capacity = 0;
};

// Those of one dtype. A map has a forward and a backward kernel; FENCHEL_ROW_KERNELS names the
// others, and fills them in.
template <class T>
struct Kernels {
#define FENCHEL_MEMBERS(map, ...)                                                     \
  int (*map##_forward)(const T* x, T* p, const Layout&);                              \
  int (*map##_backward)(const T* p, const T* grad, T* grad_x, double* grad_parameter, \
                        const Layout&);
  FENCHEL_MAPS(FENCHEL_MEMBERS)
#undef FENCHEL_MEMBERS
  int (*entmax_sparse)(const T* x, const Layout&, int64_t* sizes, double* threshold,
                       SparsePart<T>* parts, int n_parts);
  int (*entmax_loss)(const T* x, const Layout&, const int64_t* target, T* loss, double* slope,
                     int64_t* sizes, int64_t most, SparsePart<T>* parts, int n_parts);
  int (*list_to_dense)(const T* scale, const int64_t* starts, const int32_t* indices,
                       const T* values, T* out, int64_t rows, int64_t n);
  int (*list_times_matrix)(const T* scale, const int64_t* starts, const int32_t* indices,
                           const T* values, const T* matrix, T* out, int64_t rows, int64_t d);
  int (*transpose_list)(const T* scale, const int64_t* starts, const int32_t* indices,
                        const T* values, int64_t rows, int64_t n, int64_t* column_starts,
                        int32_t* column_rows, T* column_values);
  int (*attention_forward)(const T* query, const T* key, const T* value, const void* mask,
                           const AttentionShape&, const double* alpha, int64_t alpha_stride, T* out,
                           int64_t* sizes, SparsePart<T>* parts, int n_parts);
  int (*attention_backward_rows)(const T* key, const T* value, const T* grad_out,
                                 const AttentionShape&, const double* alpha, int64_t alpha_stride,
                                 const int64_t* starts, const int32_t* indices, const T* p,
                                 const T* factor, T* grad_query, T* grad_scores,
                                 double* grad_alpha);
  int (*attention_backward_columns)(const T* query, const T* grad_out, const AttentionShape&,
                                    const int64_t* starts, const int32_t* indices, const T* p,
                                    const T* factor, const T* grad_scores, T* grad_key,
                                    T* grad_value);
  int (*groups_forward)(int kind, const T* x, T* p, int32_t* group, T* slope, const Layout&);
  int (*groups_backward)(const T* p, const int32_t* group, const T* grad, T* grad_x, const Layout&);
  int (*attention_output)(const T* value, const AttentionShape&, const int64_t* starts,
                          const int32_t* indices, const T* weights, T* out);
};

#define FENCHEL_ROW_KERNELS(X)  \
  X(entmax_sparse)              \
  X(entmax_loss)                \
  X(list_to_dense)              \
  X(list_times_matrix)          \
  X(transpose_list)             \
  X(attention_forward)          \
  X(attention_backward_rows)    \
  X(attention_backward_columns) \
  X(attention_output)           \
  X(groups_forward)             \
  X(groups_backward)

// A kernel that is in the struct but not in a list would stay null.
#define FENCHEL_ONE(name) +1
#define FENCHEL_TWO(map, ...) +2
static_assert(sizeof(Kernels<float>) ==
                  (FENCHEL_MAPS(FENCHEL_TWO) FENCHEL_ROW_KERNELS(FENCHEL_ONE)) * sizeof(void (*)()),
              "FENCHEL_ROW_KERNELS has all kernels that are not maps");
#undef FENCHEL_TWO
#undef FENCHEL_ONE

struct StructureKernels;

struct Table {
  const char* name;
  Kernels<float> f32;
  Kernels<double> f64;
  const StructureKernels* structures;
};

// That of the instruction set on which the library runs.
const Table& table();

template <class T>
const Kernels<T>& kernels();
template <>
inline const Kernels<float>& kernels() {
  return table().f32;
}
template <>
inline const Kernels<double>& kernels() {
  return table().f64;
}

// How many threads a piece of work deserves; 1 in a forked child, whose OpenMP pool is gone.
int threads_for(int64_t entries);

// Whether a thread may keep so many bytes of scratch for its next call; give_up() when it takes
// them out again.
bool may_keep(size_t bytes);
void give_up(size_t bytes);

}  // namespace fenchel
