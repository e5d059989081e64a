// The C ABI by dtype and by map, and the tools of all cases. Included by fuzz_kernels.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <type_traits>

#include "fenchel.h"

namespace {

using Random = std::mt19937_64;

int below(Random& random, int n) { return static_cast<int>(random() % n); }

[[noreturn]] void fail(const char* what, const char* op, double parameter) {
  std::printf("FAILED: %s (%s, parameter %.17g)\n", what, op, parameter);
  std::exit(1);
}

enum Map {
#define FUZZ_MAP(map, ...) kMap_##map,
  FENCHEL_MAPS(FUZZ_MAP)
#undef FUZZ_MAP
      kMapCount
};

#define FUZZ_MAP(map, ...) #map,
const char* const kMapNames[] = {FENCHEL_MAPS(FUZZ_MAP)};
#undef FUZZ_MAP

// Whether a map takes the parameter q.
inline bool accepts(Map map, double q) {
  switch (map) {
#define FUZZ_MAP(map, good, mass) \
  case kMap_##map:                \
    return good;
    FENCHEL_MAPS(FUZZ_MAP)
#undef FUZZ_MAP
    default:
      return false;
  }
}

// What `kept` entries of a map with parameter q sum to.
inline double mass_of(Map map, double q, double kept) {
  switch (map) {
#define FUZZ_MAP(map, good, mass) \
  case kMap_##map:                \
    return std::fmin(mass, kept);
    FENCHEL_MAPS(FUZZ_MAP)
#undef FUZZ_MAP
    default:
      return 0;
  }
}

// name<T>(...) is fenchel_<name>_f32(...) or fenchel_<name>_f64(...).
#define FUZZ_BY_DTYPE(name)                      \
  template <class T, class... Arguments>         \
  auto name(Arguments... arguments) {            \
    if constexpr (std::is_same_v<T, float>) {    \
      return fenchel_##name##_f32(arguments...); \
    } else {                                     \
      return fenchel_##name##_f64(arguments...); \
    }                                            \
  }
#define FUZZ_MAP(map, ...)     \
  FUZZ_BY_DTYPE(map##_forward) \
  FUZZ_BY_DTYPE(map##_backward)
FENCHEL_MAPS(FUZZ_MAP)
#undef FUZZ_MAP
FUZZ_BY_DTYPE(entmax_sparse)
FUZZ_BY_DTYPE(entmax_loss)
FUZZ_BY_DTYPE(sparse_take)
FUZZ_BY_DTYPE(sparse_take32)
FUZZ_BY_DTYPE(list_to_dense)
FUZZ_BY_DTYPE(list_times_matrix)
FUZZ_BY_DTYPE(transpose_list)
FUZZ_BY_DTYPE(attention_forward)
FUZZ_BY_DTYPE(attention_backward)
FUZZ_BY_DTYPE(attention_output)
FUZZ_BY_DTYPE(groups_forward)
FUZZ_BY_DTYPE(groups_backward)
#undef FUZZ_BY_DTYPE

// forward<T>(map, ...) and backward<T>(map, ...): any map.
#define FUZZ_BY_MAP(pass)                     \
  template <class T, class... Arguments>      \
  int pass(Map map, Arguments... arguments) { \
    switch (map) {                            \
      FENCHEL_MAPS(FUZZ_##pass)               \
      default:                                \
        fail("no such map", #pass, map);      \
    }                                         \
  }
#define FUZZ_forward(map, ...) \
  case kMap_##map:             \
    return map##_forward<T>(arguments...);
#define FUZZ_backward(map, ...) \
  case kMap_##map:              \
    return map##_backward<T>(arguments...);
FUZZ_BY_MAP(forward)
FUZZ_BY_MAP(backward)
#undef FUZZ_backward
#undef FUZZ_forward
#undef FUZZ_BY_MAP

}  // namespace
