// Which instruction set the library runs on, chosen once, when it is first called.
#include <cstdlib>
#include <cstring>

#include "table.h"

namespace fenchel {

namespace baseline {
extern const Table table;
}
namespace avx2 {
extern const Table table;
}
namespace avx512 {
extern const Table table;
}

namespace {

// FENCHEL_INSTRUCTION_SET can ask for less than the machine has, never for more.
const Table* choose() {
  const char* wanted = std::getenv("FENCHEL_INSTRUCTION_SET");
  const auto allowed = [&](const char* name) {
    return wanted == nullptr || std::strcmp(wanted, name) == 0;
  };
  (void)allowed;
#if defined(FENCHEL_HAVE_AVX512)
  if (allowed("avx512") && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return &avx512::table;
  }
#endif
#if defined(FENCHEL_HAVE_AVX2)
  const bool at_most_avx2 = allowed("avx2") || allowed("avx512");
  if (at_most_avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    return &avx2::table;
  }
#endif
  return &baseline::table;
}

}  // namespace

const Table& table() {
  static const Table* const chosen = choose();
  return *chosen;
}

}  // namespace fenchel

int fenchel_abi_version(void) { return FENCHEL_ABI_VERSION; }

const char* fenchel_instruction_set(void) { return fenchel::table().name; }
