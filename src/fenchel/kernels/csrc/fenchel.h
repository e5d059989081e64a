/* The C ABI of fenchel's native core: every exported function, and every number with a meaning.
 *
 * Plain C99 and C++. tests/kernels/test_abi.py holds the library, the definitions and the ctypes
 * signatures of kernels/native/ to this file, and says that tests/fuzz/ calls every function.
 *
 * Arrays are contiguous and belong to the caller; const ones are only read. An argument that "may
 * be null" is left out by passing null. Scores may be -inf (masked); NaN and +inf give NaN rows.
 *
 * A change of a signature, of a number below or of what an argument means raises the version here
 * and in kernels/native/_numbers.py. */
#ifndef FENCHEL_H_
#define FENCHEL_H_

#include <stdint.h>

#define FENCHEL_ABI_VERSION 4

#if defined(__GNUC__)
#define FENCHEL_API __attribute__((visibility("default")))
#else
#define FENCHEL_API
#endif

/* -- lists: a new map or oracle adds its name here, and a file ----------------------------------*/

/* Maps with one parameter q, each in csrc/maps/<name>.h: the name, the q that are taken (any other
 * makes a row NaN), and what the entries of a row sum to, if it has as many that are not masked. */
#define FENCHEL_MAPS(X)           \
  X(entmax, q > 0, 1)             \
  X(normmax, q >= 1, 1)           \
  X(budget, q >= 0, q)            \
  X(sq_pnorm_max, q >= 1, 1)      \
  X(renyimax, q > 0 && q <= 1, 1) \
  X(logistic_budget, q >= 0, q)

/* Structures with an oracle, each in csrc/structures/oracles/, which documents its layout, sizes
 * and parts. The order is that of the numbers: append. */
#define FENCHEL_KINDS(X) \
  X(K_SUBSETS)           \
  X(SEQUENCE)            \
  X(TREE)                \
  X(PROJECTIVE_TREE)     \
  X(ASSIGNMENT)          \
  X(ALIGNMENT)           \
  X(SEGMENTATION)

/* The dtypes of rows: suffix and C type. Structures are float64. */
#define FENCHEL_DTYPES(X) \
  X(f32, float)           \
  X(f64, double)

/* -- numbers with a meaning --------------------------------------------------------------------*/

/* What every function returns that can fail. STOPPED: by the host, and fenchel_raise says why.
 * OUT_OF_RANGE: a class, kind or omega that does not exist; nothing was written. */
enum fenchel_status {
  FENCHEL_DONE = 0,
  FENCHEL_NO_MEMORY = 1,
  FENCHEL_STOPPED = 2,
  FENCHEL_OUT_OF_RANGE = 3
};

/* The kind of a structure: FENCHEL_K_SUBSETS, FENCHEL_SEQUENCE, ... */
enum fenchel_kind {
#define FENCHEL_NUMBER(name) FENCHEL_##name,
  FENCHEL_KINDS(FENCHEL_NUMBER)
#undef FENCHEL_NUMBER
      FENCHEL_KIND_COUNT
};

/* How a maximum is smoothed. */
enum fenchel_omega { FENCHEL_ENTROPY = 0, FENCHEL_L2 = 1 };

/* Which entries are fused into groups: neighbours, or those of similar size. */
enum fenchel_groups { FENCHEL_FUSEDMAX = 0, FENCHEL_OSCARMAX = 1 };

/* Scores of transitions in a SEQUENCE: none, one matrix for all positions, one per position. */
enum fenchel_transitions {
  FENCHEL_NO_TRANSITIONS = 0,
  FENCHEL_SHARED = 1,
  FENCHEL_EACH_POSITION = 2
};

/* Where SparseMAP ended: the gap is within the tolerance; it is not, and no iterations were left;
 * nor could progress be told from rounding errors any more; no member has a finite score. */
enum fenchel_face_status {
  FENCHEL_SOLVED = 0,
  FENCHEL_MAX_ITER = 1,
  FENCHEL_STALLED = 2,
  FENCHEL_INFEASIBLE = 3
};

/* In a list of parts: a place that is left, and (first) that no member has a finite score. */
enum fenchel_list { FENCHEL_NO_PART = -1, FENCHEL_NO_MEMBER = -2 };

/* A mask of attention: none, one byte per entry (0 is out), or T added to the scores. */
enum fenchel_mask { FENCHEL_NO_MASK = 0, FENCHEL_BYTE_MASK = 1, FENCHEL_ADDED_MASK = 2 };

/* The places in `shape` of attention. `heads` queries share `kv_heads` keys and values in equal
 * groups; causal: query i sees keys 0 to i; the mask's strides count its own entries. */
enum fenchel_shape {
  FENCHEL_SHAPE_BATCH = 0,
  FENCHEL_SHAPE_HEADS = 1,
  FENCHEL_SHAPE_KV_HEADS = 2,
  FENCHEL_SHAPE_QUERIES = 3,
  FENCHEL_SHAPE_KEYS = 4,
  FENCHEL_SHAPE_D = 5,
  FENCHEL_SHAPE_D_VALUE = 6,
  FENCHEL_SHAPE_CAUSAL = 7,
  FENCHEL_SHAPE_MASK_KIND = 8,
  FENCHEL_SHAPE_MASK_STRIDES = 9, /* four: of batch, head, query, key */
  FENCHEL_SHAPE_COUNT = 13
};

#ifdef __cplusplus
extern "C" {
#endif

/* -- the library -------------------------------------------------------------------------------*/

/* FENCHEL_ABI_VERSION of the library, which must be that of whoever calls it. */
FENCHEL_API int fenchel_abi_version(void);

/* "baseline", "avx2" or "avx512": the best that the machine has, or less if the environment's
 * FENCHEL_INSTRUCTION_SET asks for less when the library is first called. */
FENCHEL_API const char* fenchel_instruction_set(void);

/* How a long call asks its host whether to stop. For Python: PyGILState_Ensure,
 * PyGILState_Release, PyErr_CheckSignals, PyErr_Fetch, PyErr_Restore.
 *   lock, unlock  take the host's lock, and give it back with what lock returned
 *   check         whether something is pending: not 0 means stop
 *   fetch         takes what was raised out of the host
 *   restore       raises it again
 * All null: nobody is asked any more. */
FENCHEL_API void fenchel_set_host(int (*lock)(void), void (*unlock)(int), int (*check)(void),
                                  void (*fetch)(void**, void**, void**),
                                  void (*restore)(void*, void*, void*));

/* After a call of this thread that returned FENCHEL_STOPPED: raises in the host what stopped it.
 * The host's lock must be held. */
FENCHEL_API void fenchel_raise(void);

/* -- rows --------------------------------------------------------------------------------------
 *
 * Tensors are (outer, n, inner); a row is the n entries with one (outer, inner) pair, and row
 * r = outer_index * inner + inner_index has the parameter[r * parameter_stride], where the stride
 * is 0 or 1. */

/* fenchel_<map>_forward_<dtype>: the map of every row.
 *   x  scores
 *   p  gets the probabilities
 * fenchel_<map>_backward_<dtype>: the gradient, where p is.
 *   p               what forward gave
 *   grad            the gradient in p; not read where p is 0
 *   grad_x          gets the gradient in x
 *   grad_parameter  gets one per row, NaN if the map has none; may be null */
#define FENCHEL_DECLARE_MAP_OF(map, suffix, T)                                                 \
  FENCHEL_API int fenchel_##map##_forward_##suffix(const T* x, T* p, int64_t outer, int64_t n, \
                                                   int64_t inner, const double* parameter,     \
                                                   int64_t parameter_stride);                  \
  FENCHEL_API int fenchel_##map##_backward_##suffix(                                           \
      const T* p, const T* grad, T* grad_x, double* grad_parameter, int64_t outer, int64_t n,  \
      int64_t inner, const double* parameter, int64_t parameter_stride);
#define FENCHEL_DECLARE_MAP(map, ...)     \
  FENCHEL_DECLARE_MAP_OF(map, f32, float) \
  FENCHEL_DECLARE_MAP_OF(map, f64, double)
FENCHEL_MAPS(FENCHEL_DECLARE_MAP)
#undef FENCHEL_DECLARE_MAP
#undef FENCHEL_DECLARE_MAP_OF

/* fenchel_entmax_sparse_<dtype>: the nonzeros of entmax; inner must be 1.
 *   sizes      gets the nonzeros of each row
 *   starts     gets where each row begins among them, and how many there are: (rows + 1)
 *   threshold  gets the score above which entries of a row have mass
 *   handle     gets what fenchel_sparse_take or _take32 must be called with, once
 * fenchel_entmax_loss_<dtype>: the Fenchel-Young loss of every row; inner must be 1.
 *   target  class of each row; a negative one is ignored, one of n or more is out of range
 *   loss    gets one per row
 *   slope   gets the derivative in alpha, one per row; may be null
 *   most    how many nonzeros of p - y may be kept; of more, only the sizes are known and the
 *           handle can only be released
 *   sizes, starts, handle  as above, of p - y; all null: only the losses
 * fenchel_sparse_take_<dtype>, fenchel_sparse_take32_<dtype>: hand out what a handle holds and
 * release it.
 *   indices  get the place in the row of each nonzero; null: only release
 *   values   get the nonzeros */
#define FENCHEL_DECLARE_SPARSE(suffix, T)                                                    \
  FENCHEL_API int fenchel_entmax_sparse_##suffix(                                            \
      const T* x, int64_t outer, int64_t n, int64_t inner, const double* parameter,          \
      int64_t parameter_stride, int64_t* sizes, int64_t* starts, double* threshold,          \
      void** handle);                                                                        \
  FENCHEL_API int fenchel_entmax_loss_##suffix(                                              \
      const T* x, int64_t outer, int64_t n, int64_t inner, const double* parameter,          \
      int64_t parameter_stride, const int64_t* target, T* loss, double* slope, int64_t most, \
      int64_t* sizes, int64_t* starts, void** handle);                                       \
  FENCHEL_API void fenchel_sparse_take_##suffix(void* handle, int64_t* indices, T* values);  \
  FENCHEL_API void fenchel_sparse_take32_##suffix(void* handle, int32_t* indices, T* values);
FENCHEL_DTYPES(FENCHEL_DECLARE_SPARSE)
#undef FENCHEL_DECLARE_SPARSE

/* Listed rows: the entries of row i are those from starts[i] to starts[i + 1]; the others are 0.
 * `scale` multiplies each row by its own number; it may be null, but not for list_to_dense.
 *
 * fenchel_list_to_dense_<dtype>: out (rows, n).
 * fenchel_list_times_matrix_<dtype>: out (rows, d) = listed rows times matrix (n, d).
 * fenchel_transpose_list_<dtype>: the same entries by columns.
 *   column_starts  gets (n + 1)
 *   column_rows    get the row of each entry, ascending within a column
 *   column_values  get the entries */
#define FENCHEL_DECLARE_LISTS(suffix, T)                                                          \
  FENCHEL_API int fenchel_list_to_dense_##suffix(const T* scale, const int64_t* starts,           \
                                                 const int32_t* indices, const T* values, T* out, \
                                                 int64_t rows, int64_t n);                        \
  FENCHEL_API int fenchel_list_times_matrix_##suffix(                                             \
      const T* scale, const int64_t* starts, const int32_t* indices, const T* values,             \
      const T* matrix, T* out, int64_t rows, int64_t d);                                          \
  FENCHEL_API int fenchel_transpose_list_##suffix(                                                \
      const T* scale, const int64_t* starts, const int32_t* indices, const T* values,             \
      int64_t rows, int64_t n, int64_t* column_starts, int32_t* column_rows, T* column_values);
FENCHEL_DTYPES(FENCHEL_DECLARE_LISTS)
#undef FENCHEL_DECLARE_LISTS

/* Entmax attention; queries, keys and values are (batch, heads, length, width). `shape` has
 * FENCHEL_SHAPE_COUNT numbers; the head b * heads + h has alpha[(b * heads + h) * alpha_stride].
 * Weights are listed: one row per (batch, head, query).
 *
 * fenchel_attention_forward_<dtype>:
 *   mask    as shape says; may be null without one
 *   scale   of the scores
 *   out     gets (batch, heads, queries, d_value); may be null
 *   sizes, starts, handle  the weights, as in entmax_sparse; all null: only the output
 * fenchel_attention_backward_<dtype>: the shape's mask is not looked at.
 *   grad_out     the gradient in out
 *   starts, indices, p  the listed weights
 *   factor       what dropout multiplied each weight by; may be null
 *   grad_scores  gets the gradient in the listed scores
 *   grad_query, grad_key, grad_value  get the gradients
 *   grad_alpha   gets one per row; may be null
 * fenchel_attention_output_<dtype>: out from listed weights. */
#define FENCHEL_DECLARE_ATTENTION(suffix, T)                                                       \
  FENCHEL_API int fenchel_attention_forward_##suffix(                                              \
      const T* query, const T* key, const T* value, const void* mask, const int64_t* shape,        \
      double scale, const double* alpha, int64_t alpha_stride, T* out, int64_t* sizes,             \
      int64_t* starts, void** handle);                                                             \
  FENCHEL_API int fenchel_attention_backward_##suffix(                                             \
      const T* query, const T* key, const T* value, const T* grad_out, const int64_t* shape,       \
      double scale, const double* alpha, int64_t alpha_stride, const int64_t* starts,              \
      const int32_t* indices, const T* p, const T* factor, T* grad_scores, T* grad_query,          \
      T* grad_key, T* grad_value, double* grad_alpha);                                             \
  FENCHEL_API int fenchel_attention_output_##suffix(const T* value, const int64_t* shape,          \
                                                    const int64_t* starts, const int32_t* indices, \
                                                    const T* weights, T* out);
FENCHEL_DTYPES(FENCHEL_DECLARE_ATTENTION)
#undef FENCHEL_DECLARE_ATTENTION

/* fenchel_groups_forward_<dtype>: a map that fuses entries, on rows (rows, n).
 *   kind   of fenchel_groups
 *   group  gets the place in its row that names an entry's group, -1 without mass
 *   slope  gets the derivative of its group's level in lambda; may be null
 * fenchel_groups_backward_<dtype>: the gradient in x; a group is -1 or less than n. */
#define FENCHEL_DECLARE_GROUPS(suffix, T)                                                       \
  FENCHEL_API int fenchel_groups_forward_##suffix(int kind, const T* x, T* p, int32_t* group,   \
                                                  T* slope, int64_t rows, int64_t n,            \
                                                  const double* lambda, int64_t lambda_stride); \
  FENCHEL_API int fenchel_groups_backward_##suffix(                                             \
      const T* p, const int32_t* group, const T* grad, T* grad_x, int64_t rows, int64_t n);
FENCHEL_DTYPES(FENCHEL_DECLARE_GROUPS)
#undef FENCHEL_DECLARE_GROUPS

/* -- structures --------------------------------------------------------------------------------
 *
 * A batch of instances of one kind, in float64:
 *   scores  (count, parts)
 *   layout  what all instances share; its numbers are those of the kind
 *   sizes   (count, size_width): what they do not; where no width is given, it is the kind's own
 *
 * Lists of parts have FENCHEL_NO_PART in the places that are left. */

/* The number of a kind by its name in FENCHEL_KINDS ("TREE"); -1 if there is none. */
FENCHEL_API int fenchel_kind_named(const char* name);

/* How many parts the longest list has; -1 for a kind that does not exist. */
FENCHEL_API int64_t fenchel_most_parts(int kind, const int64_t* layout);

/* The best member of each instance.
 *   out   gets its list of parts: (count, most), FENCHEL_NO_MEMBER first where none is finite
 *   most  what fenchel_most_parts says, and at least 1 */
FENCHEL_API int fenchel_best_parts(int kind, const double* scores, int64_t count, int64_t parts,
                                   const int64_t* layout, const int64_t* sizes, int64_t size_width,
                                   int32_t* out, int64_t most);

/* SparseMAP of each instance.
 *   n_unary   the first so many parts have a quadratic term
 *   max_iter  the most members that may enter
 *   tol       the gap that is small enough, relative to the size of the scores
 *   complete  not 0: members of weight 0 follow until they span the face
 *   means     get (count, parts)
 *   gap, iterations, status  get one per instance, of fenchel_face_status
 *   widest, longest  get the most members of an instance, and the most parts of one
 *   handle    gets what fenchel_active_set_take must be called with, once */
FENCHEL_API int fenchel_active_set(int kind, const double* scores, int64_t count, int64_t parts,
                                   int64_t n_unary, const int64_t* layout, const int64_t* sizes,
                                   int64_t size_width, int64_t max_iter, double tol, int complete,
                                   double* means, double* gap, int64_t* iterations, int64_t* status,
                                   int64_t* widest, int64_t* longest, void** handle);

/* Hands out the faces that fenchel_active_set found, and releases them.
 *   lists    get (count, widest, longest); null: only release
 *   weights  get (count, widest), 0 in the places left
 *   matrix   gets (count, widest, widest): the weights' derivative in the members' scores */
FENCHEL_API void fenchel_active_set_take(void* handle, int64_t count, int64_t widest,
                                         int64_t longest, int32_t* lists, double* weights,
                                         double* matrix);

/* out = A Q A' x of each instance: A the members as lists (count, members, longest), Q the matrix
 * (count, members, members), x and out (count, parts). */
FENCHEL_API int fenchel_face_product(const int32_t* lists, const double* matrix, const double* x,
                                     double* out, int64_t count, int64_t parts, int64_t members,
                                     int64_t longest);

/* Sequences, at temperature 1. smoothed: values (count), -inf where no member is finite, and their
 * gradients in means (count, parts), which may be null. product: the Hessians times directions. */
FENCHEL_API int fenchel_sequence_smoothed(int omega, const double* scores, int64_t count,
                                          int64_t parts, const int64_t* layout,
                                          const int64_t* sizes, double* values, double* means);
FENCHEL_API int fenchel_sequence_product(int omega, const double* scores, const double* directions,
                                         int64_t count, int64_t parts, const int64_t* layout,
                                         const int64_t* sizes, double* out);

/* Sequences y with p(y) ~ exp(score): lists (samples, count, most), from uniform numbers in [0, 1)
 * (samples, count, positions). */
FENCHEL_API int fenchel_sequence_sample(const double* scores, int64_t count, int64_t parts,
                                        const int64_t* layout, const int64_t* sizes,
                                        const double* uniform, int64_t samples, int32_t* out);

/* The best sequences: lists (count, how_many, most) and scores (count, how_many), best first; where
 * there are fewer, no parts and -inf. */
FENCHEL_API int fenchel_sequence_k_best(const double* scores, int64_t count, int64_t parts,
                                        const int64_t* layout, const int64_t* sizes,
                                        int64_t how_many, int32_t* out, double* values);

/* Sums over trees: the log-partition in value (count), -inf if there is no tree, and marginals
 * (count, parts), or with a direction (count, parts) their derivative along it. Both may be null.
 */
FENCHEL_API int fenchel_tree_sums(int projective, const double* scores, const double* direction,
                                  int64_t count, int64_t parts, const int64_t* layout,
                                  const int64_t* sizes, double* value, double* marginals);

/* Alignments, smoothed with strength gamma; as for sequences. */
FENCHEL_API int fenchel_alignment_smoothed(int omega, double gamma, const double* scores,
                                           int64_t count, int64_t parts, const int64_t* layout,
                                           const int64_t* sizes, double* values, double* gradients);
FENCHEL_API int fenchel_alignment_product(int omega, double gamma, const double* scores,
                                          const double* directions, int64_t count, int64_t parts,
                                          const int64_t* layout, const int64_t* sizes, double* out);

#ifdef __cplusplus
}
#endif
#endif /* FENCHEL_H_ */
