// Numbers for sums over trees: sums, products and quotients of positive weights, nothing else, so
// that every result has nearly full relative precision. A weight is exp(x); which type carries it
// depends on how far the weights are apart.
//
//   double          as long as nothing can leave its range
//   Dual            with a derivative in one direction
//   Scaled<T>       T with an exponent of its own: any range
#pragma once

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

// m * 2^e with 1 <= m < 2, or m = 0. The exponent is a whole number in a double: it does not overflow.
constexpr double kExponentOfZero = -1e300;

template <class T>
struct Scaled {
  T m{};
  double e = kExponentOfZero;
};

template <class T>
inline Scaled<T> normal(T m, double e) {
  const double value = value_of(m);
  if (value == 0) return {T{}, kExponentOfZero};
  int64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const int64_t shift = ((bits >> 52) & 0x7ff) - 1023;
  return {m * power_of_two(-shift), e + static_cast<double>(shift)};
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
  return normal<T>(a.m * b.m, a.e + b.e);
}
template <class T>
inline Scaled<T> operator/(Scaled<T> a, Scaled<T> b) {
  return normal<T>(a.m / b.m, a.e - b.e);
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
    if (x == -std::numeric_limits<double>::infinity()) return {T{}, kExponentOfZero};
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
