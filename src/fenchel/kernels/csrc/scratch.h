// A thread's scratch memory: grows, is reused by every call, and is freed with the thread.
#pragma once

#include <cstdlib>

namespace fenchel {
namespace FENCHEL_ISA {

class Scratch {
 public:
  ~Scratch() { std::free(block_); }

  // At least `bytes` bytes on a cache line's boundary, or nullptr when memory is out.
  void* reserve(size_t bytes) {
    if (bytes > size_) {
      std::free(block_);
      size_ = 0;
      const size_t rounded = (bytes + 4095) / 4096 * 4096;
      block_ = std::aligned_alloc(64, rounded);
      if (block_ != nullptr) size_ = rounded;
    }
    return block_;
  }

 private:
  void* block_ = nullptr;
  size_t size_ = 0;
};

inline Scratch& scratch() {
  static thread_local Scratch mine;
  return mine;
}

}  // namespace FENCHEL_ISA
}  // namespace fenchel
