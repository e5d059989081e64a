// Random cases for the structured kernels. Included by fuzz_kernels.cpp.
#pragma once

struct Batch {
  int kind;  // of fenchel_kind
  const char* name;
  int64_t count, parts, n_unary, width;
  std::vector<int64_t> layout, sizes;
  std::vector<double> scores, direction;
};

// Finite scores with ties, -inf and large ones among them.
inline double structure_score(Random& random, int style) {
  const double usual = std::normal_distribution<double>()(random);
  if (style == 0) return below(random, 3);
  if (style == 1 && below(random, 4) == 0) return -std::numeric_limits<double>::infinity();
  if (style == 2) return usual * 1e6;
  return usual;
}

inline const char* kind_name(int kind) {
#define FENCHEL_NAME(name) \
  if (kind == FENCHEL_##name) return #name;
  FENCHEL_KINDS(FENCHEL_NAME)
#undef FENCHEL_NAME
  return "no kind";
}

inline Batch random_batch(Random& random) {
  Batch at;
  at.kind = below(random, FENCHEL_KIND_COUNT);
  at.name = kind_name(at.kind);
  if (fenchel_kind_named(at.name) != at.kind) fail("another number", at.name, at.kind);
  at.count = below(random, 4);
  const int64_t n = 1 + below(random, below(random, 8) ? 9 : 40), m = 1 + below(random, 12);
  const auto size = [&](int64_t most, int64_t least) {
    return least + below(random, most - least + 1);
  };
  at.width = 1;
  switch (at.kind) {
    case FENCHEL_K_SUBSETS: {
      const int64_t k = size(n, 1);
      at.layout = {n, k};
      at.parts = at.n_unary = n;
      for (int64_t i = 0; i < at.count; ++i) at.sizes.push_back(size(n, k));
      break;
    }
    case FENCHEL_SEQUENCE:
      at.layout = {n, m, below(random, 3), below(random, 2), below(random, 2)};
      at.n_unary = n * m;
      at.parts = n * m + (at.layout[3] + at.layout[4]) * m;
      if (at.layout[2] == FENCHEL_SHARED) at.parts += m * m;
      if (at.layout[2] == FENCHEL_EACH_POSITION) at.parts += (n - 1) * m * m;
      for (int64_t i = 0; i < at.count; ++i) at.sizes.push_back(size(n, 1));
      break;
    case FENCHEL_TREE:
    case FENCHEL_PROJECTIVE_TREE:
      at.layout = {n, below(random, 2)};
      at.parts = at.n_unary = n * (n + 1);
      for (int64_t i = 0; i < at.count; ++i) at.sizes.push_back(size(n, 1));
      break;
    case FENCHEL_ASSIGNMENT:
    case FENCHEL_ALIGNMENT:
      at.width = 2;
      at.layout = {n, m};
      at.parts = at.n_unary = n * m;
      for (int64_t i = 0; i < at.count; ++i) {
        at.sizes.push_back(size(n, 1));
        at.sizes.push_back(size(m, 1));
      }
      break;
    case FENCHEL_SEGMENTATION: {
      const int64_t longest = 1 + below(random, 5);
      at.layout = {n, longest, m, below(random, 2)};
      at.n_unary = n * longest * m;
      at.parts = at.n_unary + at.layout[3] * m * m;
      for (int64_t i = 0; i < at.count; ++i) at.sizes.push_back(size(n, 1));
      break;
    }
    default:
      fail("a kind for which this file makes no batch", at.name, at.kind);
  }
  const int style = below(random, 5);
  at.scores.resize(at.count * at.parts);
  at.direction.resize(at.count * at.parts);
  for (double& v : at.scores) v = structure_score(random, style);
  for (double& v : at.direction) v = std::normal_distribution<double>()(random);
  return at;
}

inline void check_lists(const Batch& at, const std::vector<int32_t>& lists) {
  for (const int32_t part : lists) {
    if (part < FENCHEL_NO_MEMBER || part >= at.parts) fail("part out of range", at.name, 0);
  }
}

inline void check_bounds(const Batch& at, const std::vector<double>& means, double low,
                         double high) {
  for (const double v : means) {
    if (!(v >= low - 1e-6 && v <= high + 1e-6)) fail("a mean is out of range", at.name, v);
  }
}

inline void structure_case(Random& random) {
  const Batch at = random_batch(random);
  const int64_t most = std::max<int64_t>(1, fenchel_most_parts(at.kind, at.layout.data()));
  std::vector<int32_t> best(at.count * most, 7);
  int status = fenchel_best_parts(at.kind, at.scores.data(), at.count, at.parts, at.layout.data(),
                                  at.sizes.data(), at.width, best.data(), most);
  if (status != 0) fail("an error", at.name, 0);
  check_lists(at, best);

  std::vector<double> means(at.count * at.parts, 7), gap(at.count), value(at.count, 7);
  std::vector<int64_t> iterations(at.count), ended(at.count);
  int64_t widest = 0, longest = 0;
  void* handle = nullptr;
  status = fenchel_active_set(at.kind, at.scores.data(), at.count, at.parts, at.n_unary,
                              at.layout.data(), at.sizes.data(), at.width, 1 + below(random, 60),
                              1e-9, below(random, 2), means.data(), gap.data(), iterations.data(),
                              ended.data(), &widest, &longest, &handle);
  if (status != 0) fail("an error", at.name, 1);
  std::vector<int32_t> lists(at.count * widest * longest, 7);
  std::vector<double> weights(at.count * widest), matrix(at.count * widest * widest);
  fenchel_active_set_take(handle, at.count, widest, longest, lists.data(), weights.data(),
                          matrix.data());
  check_lists(at, lists);
  std::vector<double> moved(at.count * at.parts, 7);
  status = fenchel_face_product(lists.data(), matrix.data(), at.direction.data(), moved.data(),
                                at.count, at.parts, widest, longest);
  if (status != 0) fail("an error", at.name, 2);

  const int64_t wanted = 1 + below(random, 5);
  const int omega = below(random, 2);
  if (at.kind == FENCHEL_SEQUENCE) {
    const double high = static_cast<double>(at.layout[0]);
    status =
        fenchel_sequence_smoothed(omega, at.scores.data(), at.count, at.parts, at.layout.data(),
                                  at.sizes.data(), value.data(), means.data());
    check_bounds(at, means, 0, high);
    status |= fenchel_sequence_product(omega, at.scores.data(), at.direction.data(), at.count,
                                       at.parts, at.layout.data(), at.sizes.data(), means.data());
    std::vector<double> uniform(wanted * at.count * at.layout[0]), values(at.count * wanted);
    for (double& v : uniform) v = std::uniform_real_distribution<double>()(random);
    std::vector<int32_t> drawn(wanted * at.count * most, 7);
    status |= fenchel_sequence_sample(at.scores.data(), at.count, at.parts, at.layout.data(),
                                      at.sizes.data(), uniform.data(), wanted, drawn.data());
    check_lists(at, drawn);
    status |= fenchel_sequence_k_best(at.scores.data(), at.count, at.parts, at.layout.data(),
                                      at.sizes.data(), wanted, drawn.data(), values.data());
    check_lists(at, drawn);
  } else if (at.kind == FENCHEL_TREE || at.kind == FENCHEL_PROJECTIVE_TREE) {
    const int projective = at.kind == FENCHEL_PROJECTIVE_TREE;
    status = fenchel_tree_sums(projective, at.scores.data(), nullptr, at.count, at.parts,
                               at.layout.data(), at.sizes.data(), value.data(), means.data());
    check_bounds(at, means, 0, 1);
    status |=
        fenchel_tree_sums(projective, at.scores.data(), at.direction.data(), at.count, at.parts,
                          at.layout.data(), at.sizes.data(), value.data(), means.data());
  } else if (at.kind == FENCHEL_ALIGNMENT) {
    const double gamma = std::exp(std::uniform_real_distribution<double>(-6, 6)(random));
    status =
        fenchel_alignment_smoothed(omega, gamma, at.scores.data(), at.count, at.parts,
                                   at.layout.data(), at.sizes.data(), value.data(), means.data());
    check_bounds(at, means, 0, 1);
    status |=
        fenchel_alignment_product(omega, gamma, at.scores.data(), at.direction.data(), at.count,
                                  at.parts, at.layout.data(), at.sizes.data(), means.data());
  }
  if (status != 0) fail("an error", at.name, 3);
}
