// Random cases for the maps that fuse entries into groups. Included by fuzz_kernels.cpp.
#pragma once

// p is a distribution (or zeros, or NaN), equal within groups; the gradient is finite where p is.
template <class T>
void groups_case(Random& random) {
  const int64_t rows = below(random, 30);
  const int64_t n = 1 + (below(random, 8) == 0 ? below(random, 3000) : below(random, 100));
  const int kind = below(random, 2), style = below(random, 6);
  const char* name = kind == FENCHEL_FUSEDMAX ? "fusedmax" : "oscarmax";
  const double spread = std::exp(std::uniform_real_distribution<double>(-18, 18)(random));
  const bool per_row = below(random, 2) != 0;
  std::vector<T> x(rows * n), p(rows * n, T(7)), slope(rows * n, T(7)), g(rows * n);
  std::vector<T> grad(rows * n, T(7));
  std::vector<int32_t> group(rows * n, 7);
  std::vector<double> lambda(per_row ? rows : 1);
  for (T& v : x) v = value<T>(random, style, spread);
  for (T& v : g) v = value<T>(random, 5, 1.0);
  for (double& v : lambda) {
    const double special[] = {0,     1e-300,
                              1e300, std::numeric_limits<double>::infinity(),
                              -1,    std::numeric_limits<double>::quiet_NaN()};
    const double usual = std::exp(std::uniform_real_distribution<double>(-12, 6)(random));
    v = below(random, 4) ? usual : special[below(random, 6)];
  }
  T* slopes = below(random, 2) ? slope.data() : nullptr;
  int status = groups_forward<T>(kind, x.data(), p.data(), group.data(), slopes, rows, n,
                                 lambda.data(), per_row ? 1 : 0);
  status |= groups_backward<T>(p.data(), group.data(), g.data(), grad.data(), rows, n);
  if (status != 0) fail("an error", name, 0);
  for (int64_t row = 0; row < rows; ++row) {
    const double shown = lambda[per_row ? row : 0];
    std::vector<T> level(n, T(-1));
    double sum = 0;
    bool nan = false, any = false;
    for (int64_t j = row * n; j < (row + 1) * n; ++j) {
      nan |= std::isnan(p[j]);
      any |= group[j] >= 0;
      sum += p[j];
      if (group[j] < -1 || group[j] >= n) fail("group out of range", name, shown);
      if (std::isnan(p[j]) || group[j] < 0) continue;
      if (p[j] < 0) fail("negative probability", name, shown);
      T& of_group = level[group[j]];
      if (of_group >= 0 && of_group != p[j]) fail("a group is not equal", name, shown);
      of_group = p[j];
      if (!std::isfinite(grad[j])) fail("gradient is not finite", name, shown);
    }
    if (!nan && any && std::abs(sum - 1) > 1e-5) fail("does not sum to 1", name, shown);
    if (!nan && !any && sum != 0) fail("a masked row is not 0", name, shown);
  }
}
