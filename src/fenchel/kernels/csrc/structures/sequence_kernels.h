// The dynamic programs on chains for batches of instances.
#pragma once

#include <cstring>

#include "sequence_linear.h"
#include "sequence_paths.h"

namespace fenchel {
namespace FENCHEL_ISA {

inline int64_t sequence_work(const Instances& at) {
  return at.count * at.layout[0] * at.layout[1] * (at.layout[1] + 16);
}

// work(i, SequenceLayout, scores, the solver after its forward pass, value): in probabilities where
// that is safe, else in scores.
template <class Work>
int for_chains(const Instances& at, int omega, const Work& work) {
  return for_instances(at.count, sequence_work(at), [&](int64_t i) {
    const SequenceLayout chain(at.layout, at.size_of(i));
    const double* scores = at.scores_of(i);
    if (omega == FENCHEL_L2) {
      SequenceProgram<FENCHEL_L2> program(chain);
      const double value = program.value(scores);
      return work(
          i, value, [&](double* out) { program.gradient(scores, out); },
          [&](const double* d, double* out) { program.product(scores, d, out); });
    }
    if (chain.kind == FENCHEL_SHARED && chain.tags > 1) {
      LinearSequence linear(chain, scores);
      double value;
      if (linear.forward(value)) {
        return work(
            i, value, [&](double* out) { linear.gradient(out); },
            [&](const double* d, double* out) { linear.product(d, out); });
      }
    }
    SequenceProgram<FENCHEL_ENTROPY> program(chain);
    const double value = program.value(scores);
    return work(
        i, value, [&](double* out) { program.gradient(scores, out); },
        [&](const double* d, double* out) { program.product(scores, d, out); });
  });
}

inline int sequence_smoothed(int omega, const double* scores, int64_t count, int64_t parts,
                             const int64_t* layout, const int64_t* sizes, double* values,
                             double* means) {
  const Instances at{scores, count, parts, layout, sizes, 1};
  return for_chains(at, omega, [&](int64_t i, double value, const auto& gradient, const auto&) {
    values[i] = value;
    if (means == nullptr) return;
    std::memset(means + i * parts, 0, parts * sizeof(double));
    if (value > -kInf<double>) gradient(means + i * parts);
  });
}

inline int sequence_product(int omega, const double* scores, const double* directions,
                            int64_t count, int64_t parts, const int64_t* layout,
                            const int64_t* sizes, double* out) {
  const Instances at{scores, count, parts, layout, sizes, 1};
  return for_chains(at, omega, [&](int64_t i, double value, const auto&, const auto& product) {
    std::memset(out + i * parts, 0, parts * sizeof(double));
    if (value > -kInf<double>) product(directions + i * parts, out + i * parts);
  });
}

inline int sequence_sample(const double* scores, int64_t count, int64_t parts,
                           const int64_t* layout, const int64_t* sizes, const double* uniform,
                           int64_t samples, int32_t* out) {
  const Instances at{scores, count, parts, layout, sizes, 1};
  const int64_t most = SequenceLayout::most_parts(layout);
  return for_instances(count, sequence_work(at) * (1 + samples / 8), [&](int64_t i) {
    SequenceSampler sampler(SequenceLayout(layout, at.size_of(i)), at.scores_of(i));
    const bool none = sampler.prepare() == -kInf<double>;
    for (int64_t s = 0; s < samples; ++s) {
      const int64_t row = s * count + i;
      int32_t* list = out + row * most;
      const int64_t used = none ? 0 : sampler.draw(uniform + row * layout[0], list);
      std::fill(list + used, list + most, FENCHEL_NO_PART);
      if (none) list[0] = FENCHEL_NO_MEMBER;
    }
  });
}

inline int sequence_k_best(const double* scores, int64_t count, int64_t parts,
                           const int64_t* layout, const int64_t* sizes, int64_t how_many,
                           int32_t* out, double* values) {
  const Instances at{scores, count, parts, layout, sizes, 1};
  const int64_t most = SequenceLayout::most_parts(layout);
  return for_instances(count, sequence_work(at) * how_many, [&](int64_t i) {
    sequence_k_best(SequenceLayout(layout, at.size_of(i)), at.scores_of(i), most, how_many,
                    out + i * how_many * most, values + i * how_many);
  });
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
