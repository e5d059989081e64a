// Random cases for the kernels that find, turn and multiply lists: the loss, their products,
// attention. Included by fuzz_kernels.cpp, after its tools.
#pragma once

namespace {

// Equal, or both NaN.
template <class T>
bool same(T a, T b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// Whether a sum of products came out within rounding of what it is in double.
template <class T>
bool close(double got, double wanted, double size) {
  if (!std::isfinite(wanted) || !std::isfinite(size)) return true;
  if (size > 0.01 * std::numeric_limits<T>::max()) return true;  // may overflow on the way
  const double eps = std::numeric_limits<T>::epsilon();
  return std::abs(got - wanted) <= 200 * eps * size + 200.0 * std::numeric_limits<T>::min();
}

template <class T>
void check_lists(const std::vector<int64_t>& sizes, const std::vector<int64_t>& starts,
                 const std::vector<int32_t>& indices, int64_t n, const char* name) {
  for (size_t row = 0; row < sizes.size(); ++row) {
    if (starts[row + 1] - starts[row] != sizes[row]) fail("starts differ from sizes", name, 0);
    for (int64_t k = starts[row]; k < starts[row + 1]; ++k) {
      if (indices[k] < 0 || indices[k] >= n) fail("index out of range", name, 0);
      if (k > starts[row] && indices[k] <= indices[k - 1]) fail("places descend", name, 0);
    }
  }
}

// The lists times a matrix and turned around, against plain loops.
template <class T>
void products_case(Random& random, const std::vector<int64_t>& starts,
                   const std::vector<int32_t>& indices, const std::vector<T>& values, int64_t n) {
  const int64_t rows = static_cast<int64_t>(starts.size()) - 1, d = 1 + below(random, 150);
  std::vector<T> scale(rows), matrix(n * d), out(rows * d, T(7));
  for (T& v : scale) v = value<T>(random, 5, 1.0);
  for (T& v : matrix) v = value<T>(random, 5, 1.0);
  const T* given = below(random, 2) ? scale.data() : nullptr;
  list_times_matrix<T>(given, starts.data(), indices.data(), values.data(), matrix.data(),
                       out.data(), rows, d);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t c = below(random, static_cast<int>(d));
    double sum = 0, size = 0;
    for (int64_t k = starts[row]; k < starts[row + 1]; ++k) {
      const double term = static_cast<double>(values[k]) * matrix[indices[k] * d + c];
      sum += term;
      size += std::abs(term);
    }
    const double factor = given == nullptr ? 1.0 : given[row];
    if (!close<T>(out[row * d + c], sum * factor, size * std::abs(factor))) {
      fail("wrong product", "times_matrix", d);
    }
  }

  std::vector<int64_t> column_starts(n + 1, 7);
  std::vector<int32_t> column_rows(values.size(), 7);
  std::vector<T> column_values(values.size(), T(7));
  transpose_list<T>(given, starts.data(), indices.data(), values.data(), rows, n,
                    column_starts.data(), column_rows.data(), column_values.data());
  std::vector<int64_t> sizes(n);
  for (int64_t j = 0; j < n; ++j) sizes[j] = column_starts[j + 1] - column_starts[j];
  if (column_starts[0] != 0 || column_starts[n] != starts[rows]) {
    fail("columns do not add up", "transpose", n);
  }
  check_lists<T>(sizes, column_starts, column_rows, rows, "transpose");
  std::vector<int64_t> next(column_starts.begin(), column_starts.end() - 1);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = starts[row]; k < starts[row + 1]; ++k) {
      const int64_t place = next[indices[k]]++;
      const T wanted = (given == nullptr ? T(1) : given[row]) * values[k];
      if (column_rows[place] != row || !same(column_values[place], wanted)) {
        fail("wrong value", "transpose", n);
      }
    }
  }
}

template <class T>
void loss_case(Random& random) {
  const int64_t rows = below(random, 30);
  const int64_t n = 1 + (below(random, 8) == 0 ? below(random, 3000) : below(random, 200));
  const bool per_row = below(random, 2) != 0;
  const int style = below(random, 6);
  const double spread = std::exp(std::uniform_real_distribution<double>(-18, 18)(random));
  std::vector<T> x(rows * n), p(rows * n), loss(rows, T(7)), alone(rows, T(7));
  std::vector<double> alpha(per_row ? rows : 1), slope(rows, 7);
  std::vector<int64_t> target(rows), sizes(rows), starts(rows + 1);
  for (T& v : x) v = value<T>(random, style, spread);
  for (double& v : alpha) v = parameter_for(random, kMap_entmax);
  for (int64_t& y : target) {
    y = below(random, 5) ? below(random, static_cast<int>(n)) : std::numeric_limits<int64_t>::min();
  }
  const int64_t stride = per_row ? 1 : 0;
  void* handle = nullptr;
  int status = entmax_loss<T>(x.data(), rows, n, 1, alpha.data(), stride, target.data(),
                              loss.data(), below(random, 2) ? slope.data() : nullptr, rows * n,
                              sizes.data(), starts.data(), &handle);
  status |= entmax_loss<T>(x.data(), rows, n, 1, alpha.data(), stride, target.data(), alone.data(),
                           nullptr, 0, nullptr, nullptr, nullptr);
  // More nonzeros than may be kept: the handle is released.
  void* too_many = nullptr;
  std::vector<int64_t> same_sizes(rows), same_starts(rows + 1);
  status |= entmax_loss<T>(x.data(), rows, n, 1, alpha.data(), stride, target.data(), alone.data(),
                           nullptr, 0, same_sizes.data(), same_starts.data(), &too_many);
  sparse_take32<T>(too_many, nullptr, nullptr);
  if (same_sizes != sizes || same_starts != starts) fail("other sizes", "entmax_loss", 0);
  status |= forward<T>(kMap_entmax, x.data(), p.data(), rows, n, 1, alpha.data(), stride);
  if (status != 0) fail("an error", "entmax_loss", 0);
  std::vector<int32_t> indices(starts[rows]);
  std::vector<T> values(starts[rows]), ones(rows, T(1)), dense(rows * n, T(7));
  sparse_take32<T>(handle, indices.data(), values.data());
  check_lists<T>(sizes, starts, indices, n, "entmax_loss");
  list_to_dense<T>(ones.data(), starts.data(), indices.data(), values.data(), dense.data(), rows,
                   n);
  for (int64_t row = 0; row < rows; ++row) {
    const double a = alpha[per_row ? row : 0];
    const T* mine = p.data() + row * n;
    const bool nan = std::isnan(mine[0]), ignored = target[row] < 0;
    if (!same(loss[row], alone[row])) fail("loss differs from loss alone", "entmax_loss", a);
    if (loss[row] < 0) fail("negative loss", "entmax_loss", a);
    if (ignored && (loss[row] != 0 || sizes[row] != 0)) fail("not ignored", "entmax_loss", a);
    if (!ignored && nan != std::isnan(loss[row]))
      fail("NaN of loss and p differ", "entmax_loss", a);
    for (int64_t j = 0; j < n && !ignored && !nan; ++j) {
      const T wanted = mine[j] - (j == target[row] ? T(1) : T(0));
      if (dense[row * n + j] != wanted) fail("not p - y", "entmax_loss", a);
    }
  }
  products_case(random, starts, indices, values, n);
}

template <class T>
void attention_case(Random& random) {
  const int64_t batch = 1 + below(random, 2), kv_heads = 1 + below(random, 3);
  const int64_t heads = kv_heads * (1 + below(random, 3));
  const int64_t queries = below(random, 20);
  const int64_t keys = 1 + (below(random, 8) == 0 ? below(random, 700) : below(random, 70));
  const int64_t d = 1 + below(random, 40), d_value = 1 + below(random, 150);
  const int64_t rows = batch * heads * queries, kind = below(random, 3);
  int64_t shape[FENCHEL_SHAPE_COUNT] = {};
  shape[FENCHEL_SHAPE_BATCH] = batch;
  shape[FENCHEL_SHAPE_HEADS] = heads;
  shape[FENCHEL_SHAPE_KV_HEADS] = kv_heads;
  shape[FENCHEL_SHAPE_QUERIES] = queries;
  shape[FENCHEL_SHAPE_KEYS] = keys;
  shape[FENCHEL_SHAPE_D] = d;
  shape[FENCHEL_SHAPE_D_VALUE] = d_value;
  shape[FENCHEL_SHAPE_CAUSAL] = below(random, 2);
  shape[FENCHEL_SHAPE_MASK_KIND] = kind;
  int64_t mask_entries = 1;  // each axis is there or broadcast
  for (int axis = 3; axis >= 0 && kind != FENCHEL_NO_MASK; --axis) {
    const int64_t size[] = {batch, heads, queries, keys};
    const bool there = below(random, 3) != 0;
    shape[FENCHEL_SHAPE_MASK_STRIDES + axis] = there ? mask_entries : 0;
    if (there) mask_entries *= size[axis];
  }
  const int style = below(random, 6);
  const double spread = std::exp(std::uniform_real_distribution<double>(-6, 6)(random));
  std::vector<T> q(rows * d), k(batch * kv_heads * keys * d), v(batch * kv_heads * keys * d_value);
  std::vector<T> added(kind == FENCHEL_ADDED_MASK ? mask_entries : 0), out(rows * d_value, T(7)),
      again = out;
  std::vector<uint8_t> open(kind == FENCHEL_BYTE_MASK ? mask_entries : 0);
  for (T& x : q) x = value<T>(random, below(random, 100) ? 5 : style, spread);
  for (T& x : k) x = value<T>(random, below(random, 100) ? 5 : style, 1.0);
  for (T& x : v) x = value<T>(random, 5, 1.0);
  for (T& x : added) x = value<T>(random, style == 2 ? 1 : style, 1.0);
  for (uint8_t& x : open) x = below(random, 3) != 0;
  const void* mask =
      kind == FENCHEL_BYTE_MASK ? static_cast<const void*>(open.data()) : added.data();
  const bool per_head = below(random, 2) != 0;
  std::vector<double> alpha(per_head ? batch * heads : 1);
  for (double& a : alpha) a = parameter_for(random, kMap_entmax);
  const int64_t stride = per_head ? 1 : 0;
  const double scale = std::normal_distribution<double>(0, 1)(random);

  std::vector<int64_t> sizes(rows), starts(rows + 1);
  void* handle = nullptr;
  int status = attention_forward<T>(q.data(), k.data(), v.data(), mask, shape, scale, alpha.data(),
                                    stride, out.data(), sizes.data(), starts.data(), &handle);
  status |= attention_forward<T>(q.data(), k.data(), v.data(), mask, shape, scale, alpha.data(),
                                 stride, again.data(), nullptr, nullptr, nullptr);
  if (status != 0) fail("an error", "attention", alpha[0]);
  const int64_t total = starts[rows];
  std::vector<int32_t> indices(total);
  std::vector<T> p(total), factor(total), grad_scores(total, T(7));
  sparse_take32<T>(handle, indices.data(), p.data());
  check_lists<T>(sizes, starts, indices, keys, "attention");
  for (size_t i = 0; i < out.size(); ++i) {
    if (!same(out[i], again[i])) fail("output differs from output alone", "attention", alpha[0]);
  }
  attention_output<T>(v.data(), shape, starts.data(), indices.data(), p.data(), again.data());
  for (size_t i = 0; i < out.size(); ++i) {
    if (!same(out[i], again[i])) fail("output of weights differs", "attention", alpha[0]);
  }

  std::vector<T> g(rows * d_value), grad_q(q.size(), T(7)), grad_k(k.size(), T(7));
  std::vector<T> grad_v(v.size(), T(7));
  std::vector<double> grad_alpha(rows);
  for (T& x : g) x = value<T>(random, 5, 1.0);
  for (T& x : factor) x = below(random, 2) ? T(2) : T(0);
  const bool dropout = below(random, 2) != 0;
  status = attention_backward<T>(
      q.data(), k.data(), v.data(), g.data(), shape, scale, alpha.data(), stride, starts.data(),
      indices.data(), p.data(), dropout ? factor.data() : nullptr, grad_scores.data(),
      grad_q.data(), grad_k.data(), grad_v.data(), below(random, 2) ? grad_alpha.data() : nullptr);
  if (status != 0) fail("an error", "attention_backward", alpha[0]);

  const int64_t group = heads / kv_heads;
  std::vector<double> sums(grad_k.size()), magnitudes(grad_k.size());
  std::vector<double> value_sums(grad_v.size()), value_magnitudes(grad_v.size());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t head = row / queries, kv = head / heads * kv_heads + head % heads / group;
    const double a = alpha[per_head ? head : 0];
    double sum = 0;
    for (int64_t l = starts[row]; l < starts[row + 1]; ++l) {
      if (shape[FENCHEL_SHAPE_CAUSAL] && indices[l] > row % queries)
        fail("a look ahead", "attention", a);
      if (p[l] < 0) fail("a negative weight", "attention", a);
      sum += p[l];
      for (int64_t c = 0; c < d; ++c) {
        const double term = scale * grad_scores[l] * q[row * d + c];
        sums[(kv * keys + indices[l]) * d + c] += term;
        magnitudes[(kv * keys + indices[l]) * d + c] += std::abs(term);
      }
      for (int64_t c = 0; c < d_value; ++c) {
        const double term =
            static_cast<double>(p[l]) * (dropout ? factor[l] : T(1)) * g[row * d_value + c];
        value_sums[(kv * keys + indices[l]) * d_value + c] += term;
        value_magnitudes[(kv * keys + indices[l]) * d_value + c] += std::abs(term);
      }
    }
    const double slack = std::is_same_v<T, float> ? 4e-5 : 1e-10;
    if (!std::isnan(sum) && !(std::abs(sum - (sizes[row] > 0)) <= slack)) {
      fail("weights do not sum to 1", "attention", a);
    }
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    if (!close<T>(grad_k[i], sums[i], magnitudes[i]))
      fail("wrong gradient of a key", "attention", d);
  }
  for (size_t i = 0; i < value_sums.size(); ++i) {
    if (!close<T>(grad_v[i], value_sums[i], value_magnitudes[i])) {
      fail("wrong gradient of a value", "attention", d_value);
    }
  }
}

}  // namespace
