// What a structure is to the solvers: an oracle for its best member.
//
//   struct AnOracle {
//     AnOracle(const int64_t* layout, const int64_t* size);  // may throw std::bad_alloc
//     static int64_t most_parts(const int64_t* layout);      // room for the longest list of parts
//     int64_t argmax(const double* scores, int32_t* parts);  // how many; kNone: none is finite
//   };
//
// `layout` is what all instances of a batch share, `size` the row of sizes of one instance; the
// Python structure of the same name writes both. Each has a file in oracles/, which enters its
// class into OracleOf under the name that FENCHEL_KINDS has. Parts may repeat. The same scores
// always give the same answer, and -inf is never chosen. An oracle owns its scratch and serves one
// instance. Loops that may be long have a StopCheck, which throws.
#pragma once

#include <cstdint>
#include <new>

#include "../fenchel.h"
#include "../stopping.h"
#include "../table.h"

namespace fenchel {
namespace FENCHEL_ISA {

constexpr int64_t kNone = -1;  // no member has a finite score

// OracleOf<kind>::type is the class.
template <fenchel_kind kind>
struct OracleOf;

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

// work(i) for every instance, in parallel if `entries` of work deserve it.
template <class Work>
int for_instances(int64_t count, int64_t entries, const Work& work) {
  const int64_t each = count == 0 ? 0 : entries / count;
  return for_chunks(count, 1, threads_for(entries), [&](int64_t i, int64_t, Worker& worker) {
    if (worker.stop(each)) return;
    try {
      work(i);
    } catch (const std::bad_alloc&) {
      worker.fail(FENCHEL_NO_MEMORY);
    } catch (const Stopped&) {
      // The one who was told has told the team.
    }
  });
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
