// Throws random shapes, values and parameters at the C ABI; built with the sanitizers, which see
// every byte out of place, and checks what must hold for any input.
//
//   fuzz_kernels [cases] [seed]
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <random>
#include <vector>

#include "fuzz_api.h"

namespace {

template <class T>
T value(Random& random, int style, double scale) {
  const double inf = std::numeric_limits<double>::infinity();
  std::normal_distribution<double> normal(0, scale);
  switch (style) {
    case 0:  // ties
      return static_cast<T>(below(random, 3) * scale);
    case 1:  // masks
      return below(random, 2) ? static_cast<T>(-inf) : static_cast<T>(normal(random));
    case 2: {  // the worst of all
      const double worst[] = {inf,
                              -inf,
                              std::nan(""),
                              0.0,
                              -0.0,
                              std::numeric_limits<T>::max(),
                              std::numeric_limits<T>::lowest(),
                              std::numeric_limits<T>::min(),
                              std::numeric_limits<T>::denorm_min(),
                              1.0};
      return static_cast<T>(worst[below(random, 10)]);
    }
    default:
      return static_cast<T>(normal(random));
  }
}

double parameter_for(Random& random, Map map) {
  const double special[] = {1,
                            1.5,
                            2,
                            1.25,
                            1 + 1.0 / 3,
                            1.0001,
                            2.0001,
                            1e6,
                            1e305,
                            std::numeric_limits<double>::infinity(),
                            std::nan(""),
                            0.5,
                            -1};
  if (below(random, 3) == 0) return special[below(random, 13)];
  const double unit = std::uniform_real_distribution<double>(0, 1)(random);
  if (accepts(map, 0.5) && (!accepts(map, 2) || below(random, 3) == 0)) {
    return below(random, 2) ? unit : 1 - std::exp(-30 * unit);  // below 1, and near it
  }
  return accepts(map, 0) ? 5 * unit : 1 + std::exp(6 * unit - 4);
}

template <class T>
void one_case(Random& random) {
  constexpr bool f32 = std::is_same_v<T, float>;
  const Map map = static_cast<Map>(below(random, kMapCount));
  const char* name = kMapNames[map];
  const int64_t outer = below(random, 20);
  const int64_t inner = below(random, 2) ? 1 : below(random, 20);
  const int64_t n = 1 + (below(random, 8) == 0 ? below(random, 6000) : below(random, 200));
  const int64_t rows = outer * inner, count = rows * n;
  const bool per_row = below(random, 2) != 0;
  const int style = below(random, 6);
  const double scale = std::exp(std::uniform_real_distribution<double>(-18, 18)(random));

  // Exactly as large as they must be: one byte more and the sanitizer speaks up.
  std::vector<T> x(count), p(count, T(7)), g(count), grad(count, T(7));
  std::vector<double> parameter(per_row ? rows : 1), grad_parameter(rows);
  for (T& v : x) v = value<T>(random, style, scale);
  for (T& v : g) v = value<T>(random, below(random, 50) ? 5 : 2, 1.0);
  for (double& v : parameter) v = parameter_for(random, map);
  const double* at = parameter.data();
  const int64_t stride = per_row ? 1 : 0;
  const double shown = parameter.empty() ? 0 : parameter[0];

  int status = forward<T>(map, x.data(), p.data(), outer, n, inner, at, stride);
  if (status != 0) fail("forward returned an error", name, shown);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) {
      const int64_t row = o * inner + i;
      const double q = parameter[per_row ? row : 0];
      double sum = 0, kept = 0;
      bool nan = false, bad = !accepts(map, q);
      for (int64_t j = 0; j < n; ++j) {
        const int64_t k = (o * n + j) * inner + i;
        nan |= std::isnan(p[k]);
        bad |= std::isnan(x[k]) || x[k] == std::numeric_limits<T>::infinity();
        kept += x[k] > -std::numeric_limits<T>::infinity();
        if (p[k] < 0 || p[k] > T(1.00001)) fail("p outside [0, 1]", name, q);
        if (p[k] > 0 && x[k] == -std::numeric_limits<T>::infinity()) fail("mass on -inf", name, q);
        sum += p[k];
      }
      if (nan != bad) fail("NaN where there should be none, or none where there should", name, q);
      if (nan) continue;
      const double goal = mass_of(map, q, kept);
      const double slack = (f32 ? 1e-6 : 1e-11) * (std::log2(n + 1.0) + goal) * (f32 ? 4 : 1);
      if (!(std::abs(sum - goal) <= slack)) {
        for (int64_t j = 0; j < std::min<int64_t>(n, 40); ++j) {
          const int64_t k = (o * n + j) * inner + i;
          std::printf("x %.17g  p %.17g\n", static_cast<double>(x[k]), static_cast<double>(p[k]));
        }
        std::printf("sum %.17g instead of %.17g, n = %ld\n", sum, goal, static_cast<long>(n));
        fail("wrong sum", name, q);
      }
    }
  }

  double* to = below(random, 2) ? grad_parameter.data() : nullptr;
  status = backward<T>(map, p.data(), g.data(), grad.data(), to, outer, n, inner, at, stride);
  if (status != 0) fail("backward returned an error", name, shown);
  for (int64_t k = 0; k < count; ++k) {
    if (p[k] == 0 && grad[k] != 0) fail("gradient where p is 0", name, shown);
  }

  if (map != kMap_entmax || inner != 1) return;
  std::vector<int64_t> sizes(rows), starts(rows + 1);
  std::vector<double> threshold(rows);
  void* handle = nullptr;
  status = entmax_sparse<T>(x.data(), outer, n, inner, at, stride, sizes.data(), starts.data(),
                            threshold.data(), &handle);
  if (status != 0) fail("sparse returned an error", name, shown);
  const int64_t total = starts[rows];
  std::vector<int64_t> indices(total);
  std::vector<T> values(total);
  sparse_take<T>(handle, indices.data(), values.data());
  int64_t next = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < sizes[row]; ++c, ++next) {
      const T dense = p[row * n + indices[next]];
      if (!(values[next] == dense) && !std::isnan(dense)) fail("sparse differs", name, shown);
    }
  }
  if (next != total) fail("sizes do not add up", name, shown);
}

}  // namespace

#include "fuzz_groups.h"
#include "fuzz_lists.h"
#include "fuzz_structures.h"

#include "fuzz_errors.h"  // needs the others

template <class T>
void any_case(Random& random) {
  const int kind = below(random, 6);
  if (kind == 5) {
    structure_case(random);
  } else if (kind == 4) {
    groups_case<T>(random);
  } else if (kind == 0) {
    loss_case<T>(random);
  } else if (kind == 1) {
    attention_case<T>(random);
  } else {
    one_case<T>(random);
  }
}

int main(int argc, char** argv) {
  const long cases = argc > 1 ? std::atol(argv[1]) : 3000;
  Random random(argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  for (long i = 0; i < cases; ++i) {
    if (i % 2 == 0) {
      any_case<float>(random);
    } else {
      any_case<double>(random);
    }
  }
  if (fenchel_abi_version() != FENCHEL_ABI_VERSION) fail("another version", "abi_version", 0);
  error_cases();
  stop_case();
  std::printf("%ld cases on %s, nothing found\n", cases, fenchel_instruction_set());
  return 0;
}
