// Which instruction set the library runs on, chosen once.
#pragma once

#include <cstdlib>
#include <cstring>

namespace fenchel {

enum class InstructionSet { baseline, avx2, avx512 };

// FENCHEL_INSTRUCTION_SET can ask for less than the machine has, never for more.
inline InstructionSet instruction_set() {
  const char* wanted = std::getenv("FENCHEL_INSTRUCTION_SET");
  const auto allowed = [&](const char* name) {
    return wanted == nullptr || std::strcmp(wanted, name) == 0;
  };
  (void)allowed;
#if defined(FENCHEL_HAVE_AVX512)
  if (allowed("avx512") && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return InstructionSet::avx512;
  }
#endif
#if defined(FENCHEL_HAVE_AVX2)
  const bool at_most_avx2 = allowed("avx2") || allowed("avx512");
  if (at_most_avx2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi2")) {
    return InstructionSet::avx2;
  }
#endif
  return InstructionSet::baseline;
}

}  // namespace fenchel
