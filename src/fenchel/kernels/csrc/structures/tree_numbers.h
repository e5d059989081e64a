// Numbers for sums over trees: sums, products and quotients of positive weights, nothing else, so
// that every result has nearly full relative precision. A weight is exp(x); which type carries it
// depends on how far the weights are apart.
//
//   double          as long as nothing can leave its range
//   Dual            with a derivative in one direction
//   Scaled<T>       T with an exponent of its own: any range
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "../table.h"

namespace fenchel {
namespace FENCHEL_ISA {

struct Dual {
  double value, slope;
};

inline Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
inline Dual operator*(Dual a, Dual b) {
  return {a.value * b.value, a.value * b.slope + a.slope * b.value};
}
inline Dual operator/(Dual a, Dual b) {
  const double q = a.value / b.value;
  return {q, (a.slope - q * b.slope) / b.value};
}
inline Dual operator*(Dual a, double factor) { return {a.value * factor, a.slope * factor}; }

inline double value_of(double x) { return x; }
inline double value_of(Dual x) { return x.value; }

inline double power_of_two(int64_t exponent) {  // of a normal number
  const int64_t bits = (exponent + 1023) << 52;
  double out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

// m * 2^e with 1 <= m < 2 (about 1 if e has no room for less), or m = 0. The exponent is a whole
// number in a double: it does not overflow.
constexpr double kExponentOfZero = -std::numeric_limits<double>::infinity();

template <class T>
struct Scaled {
  T m{};
  double e = kExponentOfZero;
};

// m * 2^(e + rest).
template <class T>
inline Scaled<T> normal(T m, double e, double rest = 0) {
  const double value = value_of(m);
  if (value == 0) return {T{}, kExponentOfZero};
  int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const double moved = e + (static_cast<double>(((bits >> 52) & 0x7ff) - 1023) + rest);
  const int64_t shift = static_cast<int64_t>(moved - e - rest);  // an e above 2^53 absorbs it
  return {m * power_of_two(-shift), moved};
}

// a + b and what it rounds away, which only exponents above 2^53 do; such have no better digits.
inline double sum_of_exponents(double a, double b, double* rest) {
  const double sum = a + b, of_b = sum - a;
  *rest = std::min(std::max((a - (sum - of_b)) + (b - of_b), -900.0), 900.0);
  return sum;
}

template <class T>
inline Scaled<T> operator+(Scaled<T> a, Scaled<T> b) {
  if (a.e < b.e) std::swap(a, b);
  const double apart = a.e - b.e;
  if (!(apart < 200)) return a;  // b is less than a's last digit, or zero
  return normal<T>(a.m + b.m * power_of_two(-static_cast<int64_t>(apart)), a.e);
}
template <class T>
inline Scaled<T> operator*(Scaled<T> a, Scaled<T> b) {
  double rest;
  const double e = sum_of_exponents(a.e, b.e, &rest);
  return normal<T>(a.m * b.m, e, rest);
}
template <class T>
inline Scaled<T> operator/(Scaled<T> a, Scaled<T> b) {
  double rest;
  const double e = sum_of_exponents(a.e, -b.e, &rest);
  return normal<T>(a.m / b.m, e, rest);
}

template <class T>
inline double value_of(Scaled<T> x) {
  return x.e < -1022 ? 0.0 : value_of(x.m) * power_of_two(static_cast<int64_t>(x.e));
}

constexpr double kLn2High = 0x1.62e42fee00000p-1, kLn2Low = 0x1.a39ef35793c76p-33;

// What a type needs besides arithmetic: exp of x with slope dx, log, and the result
// that is asked for: the number itself, or its slope.
template <class T>
struct Number;  // of T{}: zero

template <>
struct Number<double> {
  static double exp(double x, double) { return std::exp(x); }
  static double log(double x) { return std::log(x); }
  static double result(double x) { return x; }
};

template <>
struct Number<Dual> {
  static Dual exp(double x, double dx) {
    const double e = std::exp(x);
    return {e, e * dx};
  }
  static double log(Dual x) { return std::log(x.value); }
  static double result(Dual x) { return x.slope; }
};

template <class T>
struct Number<Scaled<T>> {
  static Scaled<T> exp(double x, double dx) {
    if (x < -1e300) return {T{}, kExponentOfZero};  // an exponent would overflow
    const double e = std::floor(x * 1.4426950408889634);
    double rest = std::fma(-e, kLn2Low, std::fma(-e, kLn2High, x));
    if (!(rest > -1 && rest < 1)) rest = 0;  // |x| above 2^53: it has no digits after the point
    return normal<T>(Number<T>::exp(rest, dx), e);
  }
  static double log(Scaled<T> x) {
    return std::fma(x.e, kLn2High, std::fma(x.e, kLn2Low, Number<T>::log(x.m)));
  }
  static double result(Scaled<T> x) {
    return x.e < -1000 ? 0.0 : Number<T>::result(x.m * power_of_two(static_cast<int64_t>(x.e)));
  }
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
