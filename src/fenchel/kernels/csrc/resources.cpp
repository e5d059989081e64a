// How many threads and how much kept memory a call may have, for all instruction sets.
#include <omp.h>

#include <algorithm>
#include <atomic>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

#include "table.h"

namespace fenchel {

namespace {

bool forked = false;
const int watch_forks = [] {
#if defined(__unix__) || defined(__APPLE__)
  pthread_atfork(nullptr, nullptr, [] { forked = true; });
#endif
  return 0;
}();

}  // namespace

int threads_for(int64_t entries) {
  // Waking a thread costs about as much as this many entries.
  constexpr int64_t kEntriesPerThread = 16384;
  if (forked || omp_in_parallel()) return 1;
  const int64_t useful = std::max<int64_t>(1, entries / kEntriesPerThread);
  return static_cast<int>(std::min<int64_t>(omp_get_max_threads(), useful));
}

namespace {

constexpr size_t kMegabyte = size_t(1) << 20;
std::atomic<size_t> kept_bytes{0};

// Blocks up to this size are not worth counting.
size_t counted(size_t bytes) { return bytes <= kMegabyte ? 0 : bytes; }

}  // namespace

bool may_keep(size_t bytes) {
  const size_t more = counted(bytes);
  if (more == 0) return true;
  if (bytes > 64 * kMegabyte) return false;
  if (kept_bytes.fetch_add(more, std::memory_order_relaxed) + more <= 128 * kMegabyte) return true;
  kept_bytes.fetch_sub(more, std::memory_order_relaxed);
  return false;
}

void give_up(size_t bytes) {
  if (counted(bytes) != 0) kept_bytes.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace fenchel
