// First-order gradients from the output alone, one row. The same formulas, in torch and with
// their derivation, stand beside each map in fenchel.maps.
#pragma once

#include <algorithm>

#include "curve.h"

namespace fenchel {
namespace FENCHEL_ISA {

// s = p^(2 - alpha) on the support: the diagonal of entmax's Jacobian before the rank-one term.
template <class T, AlphaKind kind>
inline Vec<T> sensitivity(Vec<T> p, Vec<T> exponent) {
  if constexpr (kind == AlphaKind::kSoftmax) {
    return p;
  } else if constexpr (kind == AlphaKind::kSquare) {
    return sqrt<T>(p);
  } else if constexpr (kind == AlphaKind::kWhole4) {
    const Vec<T> root = sqrt<T>(p);
    return root * sqrt<T>(root);  // p^(3/4)
  } else {
    // p != 0, not p > 0, and p - p added: a NaN row must give NaN gradients.
    const Mask<T> in = p != T(0);
    if constexpr (kind == AlphaKind::kLinear) {
      return in ? T(1) + (p - p) : splat(T(0));
    } else {
      return in ? power<T>(in ? p : splat(T(1)), exponent) + (p - p) : splat(T(0));
    }
  }
}

template <class T>
inline Vec<T> load_upto(const T* from, int part) {
  return part == kLanes<T> ? load(from) : load_part(from, part, T(0));
}

template <class T>
inline void store_upto(T* to, Vec<T> v, int part) {
  if (part == kLanes<T>) {
    store(to, v);
  } else {
    store_part(to, v, part);
  }
}

// entmax_backward_row for rows of at most `vectors` vectors, all in registers.
template <class T, AlphaKind kind, int vectors>
inline void entmax_backward_registers(const T* p, const T* g, int64_t n, double alpha, T* grad_x) {
  constexpr int lanes = kLanes<T>;
  const Vec<T> exponent = splat(static_cast<T>(2 - alpha)), zero = splat(T(0));
  const int last = static_cast<int>(n - (vectors - 1) * lanes);
  Vec<T> s[vectors], grad[vectors], sum = zero, dot = zero;
  for (int v = 0; v < vectors; ++v) {
    const int part = v == vectors - 1 ? last : lanes;
    const Vec<T> value = load_upto(p + v * lanes, part);
    grad[v] = load_upto(g + v * lanes, part);
    s[v] = sensitivity<T, kind>(value, exponent);
    sum += s[v];
    dot += value != T(0) ? s[v] * grad[v] : zero;
  }
  const T total = sum_lanes<T>(sum);
  const Vec<T> mean = splat(total == 0 ? T(0) : sum_lanes<T>(dot) / total);
  for (int v = 0; v < vectors; ++v) {
    const Vec<T> out = s[v] != T(0) ? s[v] * (grad[v] - mean) : zero;
    store_upto(grad_x + v * lanes, out, v == vectors - 1 ? last : lanes);
  }
}

// grad_x = s (g - sum(s g) / sum(s)), alpha <= 2. Where p is zero, g is not even read. In between,
// grad_x holds s; `live` lists the vectors with a nonzero.
template <class T, AlphaKind kind>
inline void entmax_backward_row(const T* p, const T* g, int64_t n, double alpha, T* grad_x,
                                int32_t* live) {
  constexpr int lanes = kLanes<T>;
  switch ((n + lanes - 1) / lanes) {
    case 1:
      return entmax_backward_registers<T, kind, 1>(p, g, n, alpha, grad_x);
    case 2:
      return entmax_backward_registers<T, kind, 2>(p, g, n, alpha, grad_x);
    case 3:
      return entmax_backward_registers<T, kind, 3>(p, g, n, alpha, grad_x);
    case 4:
      return entmax_backward_registers<T, kind, 4>(p, g, n, alpha, grad_x);
    default:
      break;
  }
  const Vec<T> exponent = splat(static_cast<T>(2 - alpha)), zero = splat(T(0));
  double total = 0, weighted = 0;
  int64_t j = 0, live_count = 0;
  while (j < n) {
    const int64_t end = std::min<int64_t>(n, j + 64 * lanes);
    Vec<T> sum = zero, dot = zero;
    for (; j < end; j += lanes) {
      const int part = static_cast<int>(std::min<int64_t>(lanes, n - j));
      const Vec<T> value = load_upto(p + j, part);
      const Mask<T> in = value != T(0);
      live[live_count] = static_cast<int32_t>(j);
      if (!any<T>(in)) {
        store_upto(grad_x + j, zero, part);
        continue;
      }
      ++live_count;
      const Vec<T> s = sensitivity<T, kind>(value, exponent);
      store_upto(grad_x + j, s, part);
      sum += s;
      dot += in ? s * load_upto(g + j, part) : zero;
    }
    total += static_cast<double>(sum_lanes<T>(sum));
    weighted += static_cast<double>(sum_lanes<T>(dot));
  }
  const Vec<T> mean = splat(static_cast<T>(live_count == 0 ? 0 : weighted / total));
  for (int64_t k = 0; k < live_count; ++k) {
    const int64_t at = live[k];
    const int part = static_cast<int>(std::min<int64_t>(lanes, n - at));
    const Vec<T> s = load_upto(grad_x + at, part);
    store_upto(grad_x + at, s != T(0) ? s * (load_upto(g + at, part) - mean) : zero, part);
  }
}

// alpha > 2: s grows without bound as p falls, so g is taken relative to the largest s's g, which
// leaves nothing large to cancel; s itself is cut off far above all others.
template <class T>
inline void entmax_backward_steep(const T* p, const T* g, int64_t n, double alpha, T* grad_x) {
  const double cut = 1e150;
  int64_t smallest = -1;
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] != 0 && (smallest < 0 || !(p[j] >= p[smallest]))) smallest = j;
  }
  if (smallest < 0) return std::fill(grad_x, grad_x + n, T(0));
  const double base = g[smallest];
  double total = 0, weighted = 0;
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] == 0) continue;
    const double s = std::min(std::pow(static_cast<double>(p[j]), 2 - alpha), cut);
    total += s;
    weighted += s * (static_cast<double>(g[j]) - base);
  }
  const double mean = weighted / total;
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] == 0) {
      grad_x[j] = 0;
      continue;
    }
    const double s = std::min(std::pow(static_cast<double>(p[j]), 2 - alpha), cut);
    grad_x[j] = static_cast<T>(s * ((static_cast<double>(g[j]) - base) - mean));
  }
}

// grad_x for any alpha, by the path of its kind.
template <class T>
inline void entmax_backward_any(const T* p, const T* g, int64_t n, double alpha, T* out,
                                int32_t* live) {
  switch (kind_of(alpha)) {
    case AlphaKind::kSoftmax:
      return entmax_backward_row<T, AlphaKind::kSoftmax>(p, g, n, alpha, out, live);
    case AlphaKind::kSquare:
      return entmax_backward_row<T, AlphaKind::kSquare>(p, g, n, alpha, out, live);
    case AlphaKind::kLinear:
      return entmax_backward_row<T, AlphaKind::kLinear>(p, g, n, alpha, out, live);
    case AlphaKind::kWhole4:
      return entmax_backward_row<T, AlphaKind::kWhole4>(p, g, n, alpha, out, live);
    case AlphaKind::kSteep:
      return entmax_backward_steep(p, g, n, alpha, out);
    case AlphaKind::kArgmax:
    case AlphaKind::kInvalid:  // argmax is flat; a NaN row (alpha of 0 or less) stays NaN
      for (int64_t j = 0; j < n; ++j) out[j] = p[j] - p[j];
      return;
    default:
      return entmax_backward_row<T, AlphaKind::kGeneral>(p, g, n, alpha, out, live);
  }
}

// (exp(-y) - 1 + y) / y^2, also near 0.
inline double second_remainder(double y) {
  if (std::abs(y) > 0.5) return (std::expm1(-y) + y) / (y * y);
  double term = 0.5, sum = 0.5;
  for (int k = 3; k < 18; ++k) {
    term *= -y / k;
    sum += term;
  }
  return sum;
}

// sum_i g_i dp_i/dalpha = -sum_i g_i (d_i - s_i sum(d) / sum(s)),
// d_i = p_i log(p_i)^2 phi(a log p_i) for alpha <= 2. Above 2 the terms proportional to s_i, which
// drop out, are left away.
template <class T>
inline double entmax_grad_alpha(const T* p, const T* g, int64_t n, double alpha) {
  const double a = alpha - 1;
  if (!(alpha < 1e300)) return static_cast<double>(p[0] - p[0]);  // NaN for a NaN row
  double total = 0, drift = 0, direct = 0, weighted = 0, base = 0, smallest = kInf<double>;
  if (alpha > 2) {  // as in entmax_backward_steep
    for (int64_t j = 0; j < n; ++j) {
      if (p[j] != 0 && p[j] < smallest) {
        smallest = p[j];
        base = g[j];
      }
    }
  }
  for (int64_t j = 0; j < n; ++j) {
    if (p[j] == 0) continue;
    const double value = p[j], grad = static_cast<double>(g[j]) - base, l = std::log(value);
    const double s = std::min(std::exp((1 - a) * l), 1e150);
    const double d =
        a <= 1 ? value * l * l * second_remainder(a * l) : value * (a * l - 1) / (a * a);
    total += s;
    drift += d;
    direct += grad * d;
    weighted += grad * s;
  }
  return total == 0 ? 0 : weighted / total * drift - direct;
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
