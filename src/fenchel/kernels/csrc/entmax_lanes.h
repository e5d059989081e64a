// Entmax of short rows: as many rows as a vector has lanes, one row a lane.
//
// The group is transposed into scratch, so sums over a row are plain vertical additions, with no
// horizontal step and no tail. A lane never sees its neighbours: a row that is done stands still
// while the others go on, so its result is the same in any batch.
#pragma once

#include "curve.h"
#include "steep.h"
#include "table.h"

namespace fenchel {
namespace FENCHEL_ISA {

constexpr int64_t kShortRow = 160;

// Scratch of a group: u and p transposed, then doubles for a steep row.
template <class T>
constexpr size_t lane_scratch_bytes(int64_t n) {
  return 2 * n * kVectorBytes + steep_scratch_bytes(n);
}

template <class T>
inline void transpose_in(const T* x, const Layout& at, int64_t row, int count, Vec<T>* u) {
  T* flat = reinterpret_cast<T*>(u);
  constexpr int lanes = kLanes<T>;
  if (at.inner == 1) {
    for (int lane = 0; lane < lanes; ++lane) {
      const T* from = x + (row + (lane < count ? lane : 0)) * at.n;
      for (int64_t j = 0; j < at.n; ++j) flat[j * lanes + lane] = from[j];
    }
    return;
  }
  for (int lane = 0; lane < lanes; ++lane) {
    const T* from = x + at.start(row + (lane < count ? lane : 0));
    for (int64_t j = 0; j < at.n; ++j) flat[j * lanes + lane] = from[j * at.inner];
  }
}

template <class T>
inline void transpose_out(const Vec<T>* p, const Layout& at, int64_t row, int count, T* out) {
  const T* flat = reinterpret_cast<const T*>(p);
  constexpr int lanes = kLanes<T>;
  for (int lane = 0; lane < count; ++lane) {
    T* to = out + at.start(row + lane);
    for (int64_t j = 0; j < at.n; ++j) to[j * at.inner] = flat[j * lanes + lane];
  }
}

// p of the lanes in `chosen`, for one curve.
template <class T, class Curve>
inline void solve_lanes(const Curve& curve, const Vec<T>* u, int64_t n, Vec<T> tau, Mask<T> chosen,
                        Vec<T>* p) {
  Vec<T> rest = splat(T(0));
  for (int step = 0; step < kMaxSteps; ++step) {
    Vec<T> sum = splat(T(0)), slopes = splat(T(0)), slope;
    for (int64_t j = 0; j < n; ++j) {
      sum += curve(u[j] - tau, &slope);
      slopes += slope;
    }
    rest = curve.step(sum, slopes);
    const Vec<T> next = tau + rest;
    const Mask<T> moves = chosen & (sum > T(1) + Curve::kTolerance) & (next > tau);
    if (!any<T>(moves)) break;
    tau = moves ? next : tau;
  }
  for (int64_t j = 0; j < n; ++j) {
    p[j] = chosen ? curve.value((u[j] - tau) - rest) : p[j];
  }
}

template <class T>
inline void softmax_lanes(const Vec<T>* u, int64_t n, Mask<T> chosen, Vec<T>* p) {
  Vec<T> sum = splat(T(0));
  for (int64_t j = 0; j < n; ++j) sum += exp(u[j]);
  for (int64_t j = 0; j < n; ++j) p[j] = chosen ? exp(u[j]) / sum : p[j];
}

template <class T>
inline void argmax_lanes(const Vec<T>* u, int64_t n, Mask<T> chosen, Vec<T>* p) {
  Vec<T> ties = splat(T(0));
  for (int64_t j = 0; j < n; ++j) ties += u[j] == T(0) ? splat(T(1)) : splat(T(0));
  for (int64_t j = 0; j < n; ++j) {
    p[j] = chosen ? (u[j] == T(0) ? T(1) / ties : splat(T(0))) : p[j];
  }
}

template <class T>
inline void entmax_group(const T* x, T* out, const Layout& at, int64_t row, int count,
                         void* memory) {
  constexpr int lanes = kLanes<T>;
  const int64_t n = at.n;
  Vec<T>* u = static_cast<Vec<T>*>(memory);
  Vec<T>* p = u + n;
  double* doubles = reinterpret_cast<double*>(p + n);
  transpose_in(x, at, row, count, u);

  Vec<T> top = splat(-kInf<T>);
  Mask<T> bad = splat(T(0)) != splat(T(0));
  for (int64_t j = 0; j < n; ++j) {
    top = larger<T>(u[j], top);
    bad |= u[j] != u[j];
  }
  bad |= top == kInf<T>;
  const Mask<T> empty = top == -kInf<T>;
  const Vec<T> shift = (bad | empty) ? splat(T(0)) : top;
  Vec<T> total = splat(T(0));
  for (int64_t j = 0; j < n; ++j) {
    u[j] -= shift;
    total += u[j];
  }

  double alpha[lanes];
  unsigned present = 0;
  for (int lane = 0; lane < lanes; ++lane) {
    alpha[lane] = at.parameter_of(row + (lane < count ? lane : 0));
    present |= 1u << static_cast<int>(kind_of(alpha[lane]));
  }
  auto of_kind = [&](Kind kind) {
    Mask<T> m;
    for (int lane = 0; lane < lanes; ++lane) m[lane] = kind_of(alpha[lane]) == kind ? -1 : 0;
    return m & ~bad & ~empty;
  };
  auto has = [&](Kind kind) { return (present >> static_cast<int>(kind) & 1u) != 0; };
  // A first tau: were all entries equal to their mean, the sum would be no larger (convexity).
  // `lowest` is the tau of a one-hot row, `equal` that of n equal entries.
  auto first_tau = [&](Vec<T> lowest, Vec<T> equal) {
    return larger<T>(total / T(n) + equal, lowest);
  };
  const double size = static_cast<double>(n);

  if (has(Kind::kSoftmax)) softmax_lanes<T>(u, n, of_kind(Kind::kSoftmax), p);
  if (has(Kind::kSquare)) {
    const Vec<T> first = first_tau(splat(T(-2)), splat(static_cast<T>(-2 / std::sqrt(size))));
    solve_lanes<T>(Square<T>{}, u, n, first, of_kind(Kind::kSquare), p);
  }
  if (has(Kind::kLinear)) {
    const Vec<T> first = first_tau(splat(T(-1)), splat(static_cast<T>(-1 / size)));
    solve_lanes<T>(Linear<T>{}, u, n, first, of_kind(Kind::kLinear), p);
  }
  if (has(Kind::kGeneral)) {
    General<T> curve(0.5);
    Vec<T> lowest{}, equal{};
    for (int lane = 0; lane < lanes; ++lane) {
      const double a = kind_of(alpha[lane]) == Kind::kGeneral ? alpha[lane] - 1 : 0.5;
      const double base = base_of(a);
      curve.set(lane, a);
      lowest[lane] = static_cast<T>((base - 1) / a);
      equal[lane] = static_cast<T>(base == 0 ? -std::pow(size, -a) / a
                                             : -std::expm1(-a * std::log(size)) / a);
    }
    solve_lanes<T>(curve, u, n, first_tau(lowest, equal), of_kind(Kind::kGeneral), p);
  }
  if (has(Kind::kArgmax)) argmax_lanes<T>(u, n, of_kind(Kind::kArgmax), p);
  if (has(Kind::kSteep)) {
    T* flat_p = reinterpret_cast<T*>(p);
    const Mask<T> chosen = of_kind(Kind::kSteep);
    for (int lane = 0; lane < count; ++lane) {
      if (chosen[lane]) {
        steep_row(x + at.start(row + lane), at.inner, n, static_cast<double>(top[lane]),
                  alpha[lane], flat_p + lane, lanes, doubles);
      }
    }
  }
  const Mask<T> invalid = bad | (of_kind(Kind::kInvalid) & ~empty);
  if (any<T>(invalid | empty)) {
    const Vec<T> fill = invalid ? splat(kNaN<T>) : splat(T(0));
    for (int64_t j = 0; j < n; ++j) p[j] = (invalid | empty) ? fill : p[j];
  }
  transpose_out(p, at, row, count, out);
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
