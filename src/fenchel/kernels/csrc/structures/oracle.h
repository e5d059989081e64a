// What a structure is to the solvers: an oracle for its best member.
//
//   struct AnOracle {
//     AnOracle(const int64_t* layout, const int64_t* size);      // may throw std::bad_alloc
//     static int64_t most_parts(const int64_t* layout);          // room for the longest list of parts
//     int64_t argmax(const double* scores, int32_t* parts);      // how many parts, kNone if none is finite
//   };
//
// `layout` is what all instances of a batch share, `size` the row of sizes of one instance; the
// Python structure of the same name writes both. Parts may repeat. The same scores always give the
// same answer, and -inf is never chosen. An oracle owns its scratch and serves one instance.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "../table.h"

namespace fenchel {
namespace FENCHEL_ISA {

constexpr int64_t kNone = -1;  // no member has a finite score

// One batch of instances: scores (instances, parts), sizes (instances, size_width).
struct Instances {
  const double* scores;
  int64_t count, parts;
  const int64_t* layout;
  const int64_t* sizes;
  int64_t size_width;

  const double* scores_of(int64_t i) const { return scores + i * parts; }
  const int64_t* size_of(int64_t i) const { return sizes + i * size_width; }
};

// work(i) for every instance, in parallel if `entries` of work deserve it; 1 if memory ran out.
template <class Work>
int for_instances(int64_t count, int64_t entries, const Work& work) {
  const int threads = threads_for(entries);
  std::atomic<int> failed{0};
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
  for (int64_t i = 0; i < count; ++i) {
    try {
      work(i);
    } catch (const std::bad_alloc&) {
      failed = 1;
    }
  }
  return failed;
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
