// Entmax attention: scores, support and output of a few queries at a time, in cache.
//
// Scores of a block of queries against packed keys never leave the cache. Of each row only the
// nonzeros of p are kept, and the backward pass visits only their keys and values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "entmax_backward.h"
#include "list_products.h"
#include "nonzeros.h"
#include "table.h"

namespace fenchel {
namespace FENCHEL_ISA {

#if defined(__AVX512F__)
constexpr int kQueryBlock = 8;  // with two vectors of keys: 16 sums in 32 registers
#else
constexpr int kQueryBlock = 4;
#endif

template <class T>
constexpr int64_t kKeyPanel = 2 * kLanes<T>;

template <class T>
constexpr int64_t padded_keys(int64_t keys) {
  return (keys + kKeyPanel<T> - 1) / kKeyPanel<T> * kKeyPanel<T>;
}

// Keys of all heads in panels, each [d][keys of the panel]; keys that are missing are 0.
template <class T>
int pack_keys(const T* key, const AttentionShape& at, T* packed) {
  const int64_t panels = padded_keys<T>(at.keys) / kKeyPanel<T>, heads = at.batch * at.kv_heads;
  const int threads = threads_for(heads * at.keys * at.d);
  return for_shares(heads * panels, threads, [&](int64_t item, int64_t last, Worker& worker) {
    for (; item < last && !worker.stop(kKeyPanel<T> * at.d); ++item) {
      const int64_t head = item / panels, first = item % panels * kKeyPanel<T>;
      const T* from = key + (head * at.keys + first) * at.d;
      T* to = packed + item * kKeyPanel<T> * at.d;
      const int64_t count = std::min<int64_t>(kKeyPanel<T>, at.keys - first);
      for (int64_t c = 0; c < at.d; ++c) {
        for (int64_t j = 0; j < count; ++j) to[c * kKeyPanel<T> + j] = from[j * at.d + c];
        for (int64_t j = count; j < kKeyPanel<T>; ++j) to[c * kKeyPanel<T> + j] = 0;
      }
    }
  });
}

// Scores of kQueryBlock queries (packed [d][query]) against one panel of keys.
template <class T>
inline void score_panel(const T* queries, const T* panel, int64_t d, T* scores, int64_t stride) {
  constexpr int lanes = kLanes<T>;
  Vec<T> first[kQueryBlock] = {}, second[kQueryBlock] = {};
  for (int64_t c = 0; c < d; ++c) {
    const Vec<T> low = load(panel + c * kKeyPanel<T>);
    const Vec<T> high = load(panel + c * kKeyPanel<T> + lanes);
    for (int r = 0; r < kQueryBlock; ++r) {
      const Vec<T> q = splat(queries[c * kQueryBlock + r]);
      first[r] += q * low;
      second[r] += q * high;
    }
  }
  for (int r = 0; r < kQueryBlock; ++r) {
    store(scores + r * stride, first[r]);
    store(scores + r * stride + lanes, second[r]);
  }
}

template <class T>
inline T dot(const T* a, const T* b, int64_t d) {
  constexpr int lanes = kLanes<T>;
  Vec<T> sum = splat(T(0)), other = sum;
  int64_t c = 0;
  for (; c + 2 * lanes <= d; c += 2 * lanes) {
    sum += load(a + c) * load(b + c);
    other += load(a + c + lanes) * load(b + c + lanes);
  }
  for (; c < d; c += lanes) {
    const int part = static_cast<int>(std::min<int64_t>(lanes, d - c));
    sum += load_part(a + c, part, T(0)) * load_part(b + c, part, T(0));
  }
  return sum_lanes<T>(sum + other);
}

template <class T>
inline void apply_mask(const AttentionShape& at, const void* mask, int64_t b, int64_t h, int64_t i,
                       int64_t n, T* scores) {
  if (at.mask_kind == FENCHEL_NO_MASK) return;
  const int64_t from = b * at.mask_strides[0] + h * at.mask_strides[1] + i * at.mask_strides[2];
  const int64_t step = at.mask_strides[3];
  if (at.mask_kind == FENCHEL_BYTE_MASK) {
    const uint8_t* keep = static_cast<const uint8_t*>(mask) + from;
    for (int64_t j = 0; j < n; ++j) scores[j] = keep[j * step] ? scores[j] : -kInf<T>;
  } else {
    const T* bias = static_cast<const T*>(mask) + from;
    for (int64_t j = 0; j < n; ++j) {
      const T added = bias[j * step];
      scores[j] = added == -kInf<T> ? added : scores[j] + added;  // a masked key may be NaN
    }
  }
}

// Output (if wanted) and the nonzeros of p, one list a query; rows in the order (batch, head,
// query). Blocks of queries are dealt to the parts in order; the parts are worked on as they come.
template <class T>
int attention_forward(const T* query, const T* key, const T* value, const void* mask,
                      const AttentionShape& at, const double* alpha, int64_t alpha_stride, T* out,
                      int64_t* sizes, SparsePart<T>* parts, int n_parts) {
  const int64_t blocks_per_head = (at.queries + kQueryBlock - 1) / kQueryBlock;
  const int64_t blocks = at.batch * at.heads * blocks_per_head;
  const int64_t width = padded_keys<T>(at.keys), d = at.d;
  const bool few = at.queries < kQueryBlock / 2;  // then packing keys costs more than it saves
  T* packed = nullptr;
  if (!few) {
    const size_t bytes = at.batch * at.kv_heads * width * d * sizeof(T);
    packed = static_cast<T*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64));
    if (packed == nullptr) return FENCHEL_NO_MEMORY;
    const int status = pack_keys(key, at, packed);
    if (status != FENCHEL_DONE) {
      std::free(packed);
      return status;
    }
  }
  const auto rounded = [](size_t bytes) { return (bytes + 63) / 64 * 64; };
  const size_t row_bytes = rounded(RowScratch<T>::bytes(at.keys));
  const size_t score_bytes = rounded(kQueryBlock * width * sizeof(T));
  const size_t query_bytes = rounded(kQueryBlock * d * sizeof(T));
  const int threads = threads_for(at.batch * at.heads * at.queries * at.keys);
  const int status = for_chunks(n_parts, 1, threads, [&](int64_t part, int64_t, Worker& worker) {
    const Scratch scratch(row_bytes + score_bytes + query_bytes);
    char* const memory = static_cast<char*>(scratch.data());
    if (memory == nullptr) return worker.fail(FENCHEL_NO_MEMORY);
    const RowScratch<T> mine(memory, at.keys);
    T* scores = reinterpret_cast<T*>(memory + row_bytes);
    T* queries = reinterpret_cast<T*>(memory + row_bytes + score_bytes);
    const int64_t last_block = blocks * (part + 1) / n_parts;
    for (int64_t block = blocks * part / n_parts; block < last_block; ++block) {
      const int64_t head = block / blocks_per_head;  // batch * heads
      const int64_t first = block % blocks_per_head * kQueryBlock;
      const int64_t b = head / at.heads, h = head % at.heads, kv = at.kv_head(b, h);
      const int count = static_cast<int>(std::min<int64_t>(kQueryBlock, at.queries - first));
      const T* q = query + (head * at.queries + first) * d;
      const int64_t reach = at.causal ? std::min(at.keys, first + count) : at.keys;
      const T scale = static_cast<T>(at.scale);
      if (worker.stop(count * reach * (1 + d / kLanes<T>))) return;
      if (few) {
        for (int r = 0; r < count; ++r) {
          for (int64_t c = 0; c < d; ++c) queries[c] = q[r * d + c] * scale;
          const T* k = key + kv * at.keys * d;
          for (int64_t j = 0; j < reach; ++j) scores[r * width + j] = dot(queries, k + j * d, d);
        }
      } else {
        for (int64_t c = 0; c < d; ++c) {
          for (int r = 0; r < kQueryBlock; ++r) {
            queries[c * kQueryBlock + r] = r < count ? q[r * d + c] * scale : T(0);
          }
        }
        const T* panels = packed + kv * width * d;
        for (int64_t j = 0; j < reach; j += kKeyPanel<T>) {
          score_panel(queries, panels + j * d, d, scores + j, width);
        }
      }
      for (int r = 0; r < count; ++r) {
        const int64_t i = first + r, row = head * at.queries + i;
        const int64_t n = at.causal ? std::min(at.keys, i + 1) : at.keys;
        T* x = scores + r * width;
        apply_mask(at, mask, b, h, i, n, x);
        ListedRow<T> list(mine, n);
        entmax_row(static_cast<const T*>(x), n, alpha[head * alpha_stride], list, mine);
        if (out != nullptr) {
          weighted_sum(list.indices, list.values, list.count, T(1),
                       value + kv * at.keys * at.d_value, at.d_value, at.d_value,
                       out + row * at.d_value);
        }
        if (sizes == nullptr) continue;
        sizes[row] = list.count;
        if (!append_row(list, &parts[part])) return worker.fail(FENCHEL_NO_MEMORY);
      }
    }
  });
  std::free(packed);
  return status;
}

// Gradients in the queries and, listed as p is, in the scores; and in alpha, one a row, if wanted.
// `factor` (dropout) multiplies p on its way to the output, or is absent.
template <class T>
int attention_backward_rows(const T* key, const T* value, const T* grad_out,
                            const AttentionShape& at, const double* alpha, int64_t alpha_stride,
                            const int64_t* starts, const int32_t* indices, const T* p,
                            const T* factor, T* grad_query, T* grad_scores, double* grad_alpha) {
  const int64_t rows = at.batch * at.heads * at.queries, d = at.d;
  const int threads = threads_for((starts[rows] + rows) * d);
  const size_t list_bytes = (at.keys * sizeof(T) + 63) / 64 * 64;
  return for_chunks(rows, 64, threads, [&](int64_t row, int64_t last, Worker& worker) {
    const Scratch scratch(list_bytes + (at.keys + 1) * sizeof(int32_t));
    char* const memory = static_cast<char*>(scratch.data());
    if (memory == nullptr) return worker.fail(FENCHEL_NO_MEMORY);
    T* grad_p = reinterpret_cast<T*>(memory);
    int32_t* live = reinterpret_cast<int32_t*>(memory + list_bytes);
    for (; row < last; ++row) {
      const int64_t head = row / at.queries, b = head / at.heads,
                    kv = at.kv_head(b, head % at.heads);
      const int64_t first = starts[row], count = starts[row + 1] - first;
      if (worker.stop((count + 1) * d)) return;
      const T* v = value + kv * at.keys * at.d_value;
      const T* g = grad_out + row * at.d_value;
      for (int64_t k = 0; k < count; ++k) {
        grad_p[k] = dot(g, v + indices[first + k] * at.d_value, at.d_value);
        if (factor != nullptr) grad_p[k] *= factor[first + k];
      }
      const double a = alpha[head * alpha_stride];
      if (count > 0) entmax_backward_any(p + first, grad_p, count, a, grad_scores + first, live);
      if (grad_alpha != nullptr) {
        grad_alpha[row] = count > 0 ? entmax_grad_alpha(p + first, grad_p, count, a) : 0.0;
      }
      weighted_sum(indices + first, grad_scores + first, count, static_cast<T>(at.scale),
                   key + kv * at.keys * d, d, d, grad_query + row * d);
    }
  });
}

// Gradients in the keys (from the listed gradients in the scores) and in the values (from p).
template <class T>
int attention_backward_columns(const T* query, const T* grad_out, const AttentionShape& at,
                               const int64_t* starts, const int32_t* indices, const T* p,
                               const T* factor, const T* grad_scores, T* grad_key, T* grad_value) {
  const int64_t kv_heads = at.batch * at.kv_heads, group = at.heads / at.kv_heads;
  const int64_t rows = group * at.queries;  // of one head of keys, one after the other
  const bool many = kv_heads >= 2 * threads_for(int64_t(1) << 40);
  const int outer = many ? threads_for((starts[kv_heads * rows] + rows) * at.d) : 1;
  return for_chunks(kv_heads, 1, outer, [&](int64_t kv, int64_t, Worker& worker) {
    const int64_t first_row = kv * rows;
    const int64_t* row_starts = starts + first_row;
    const int64_t first = row_starts[0], total = row_starts[rows] - first;
    const size_t bytes =
        (at.keys + 1) * sizeof(int64_t) + total * (sizeof(int32_t) + 2 * sizeof(T));
    char* memory = static_cast<char*>(std::malloc(bytes + 64));
    if (memory == nullptr) return worker.fail(FENCHEL_NO_MEMORY);
    int64_t* columns = reinterpret_cast<int64_t*>(memory);
    T* scores = reinterpret_cast<T*>(columns + at.keys + 1);
    T* weights = scores + total;
    int32_t* from = reinterpret_cast<int32_t*>(weights + total);
    std::memset(columns, 0, (at.keys + 1) * sizeof(int64_t));
    for (int64_t k = 0; k < total; ++k) ++columns[indices[first + k] + 1];
    for (int64_t j = 0; j < at.keys; ++j) columns[j + 1] += columns[j];
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t k = row_starts[row]; k < row_starts[row + 1]; ++k) {
        const int64_t place = columns[indices[k]]++;
        from[place] = static_cast<int32_t>(row);
        scores[place] = grad_scores[k];
        weights[place] = factor == nullptr ? p[k] : p[k] * factor[k];
      }
    }
    const T* q = query + first_row * at.d;
    const T* g = grad_out + first_row * at.d_value;
    const auto work = [&](int64_t j, int64_t last, Worker& asking) {
      for (; j < last; ++j) {
        const int64_t start = j == 0 ? 0 : columns[j - 1], count = columns[j] - start;
        if (asking.stop((count + 1) * at.d)) return;
        weighted_sum(from + start, scores + start, count, static_cast<T>(at.scale), q, at.d, at.d,
                     grad_key + (kv * at.keys + j) * at.d);
        weighted_sum(from + start, weights + start, count, T(1), g, at.d_value, at.d_value,
                     grad_value + (kv * at.keys + j) * at.d_value);
      }
    };
    if (many) {
      work(0, at.keys, worker);
    } else {
      const int inner = threads_for((total + at.keys) * at.d);
      const int status = for_chunks(at.keys, 16, inner, work);
      if (status != FENCHEL_DONE) worker.fail(status);
    }
    std::free(memory);
  });
}

// The output from listed weights: what dropout leaves of p times the values.
template <class T>
int attention_output(const T* value, const AttentionShape& at, const int64_t* starts,
                     const int32_t* indices, const T* weights, T* out) {
  const int64_t rows = at.batch * at.heads * at.queries;
  const int threads = threads_for((starts[rows] + rows) * at.d_value);
  return for_chunks(rows, 64, threads, [&](int64_t row, int64_t last, Worker& worker) {
    for (; row < last; ++row) {
      const int64_t head = row / at.queries, kv = at.kv_head(head / at.heads, head % at.heads);
      const int64_t first = starts[row], count = starts[row + 1] - first;
      if (worker.stop((count + 1) * at.d_value)) return;
      weighted_sum(indices + first, weights + first, count, T(1), value + kv * at.keys * at.d_value,
                   at.d_value, at.d_value, out + row * at.d_value);
    }
  });
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
