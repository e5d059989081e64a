// A thread's scratch memory. A small block stays with the thread for its next call, a large one is
// given back when the loop that needed it ends.
#pragma once

#include <cstdlib>

namespace fenchel {
namespace FENCHEL_ISA {

constexpr size_t kKeptBytes = size_t(16) << 20;  // the most that a thread keeps

class Scratch {
 public:
  // At least `bytes` bytes on a cache line's boundary; data() is null when memory is out.
  explicit Scratch(size_t bytes) {
    // What is lent is not there: a call within a call (by a signal's handler) gets its own.
    Kept& mine = kept();
    block_ = mine.block;
    size_ = mine.size;
    mine.block = nullptr;
    mine.size = 0;
    if (block_ != nullptr && bytes <= size_) return;
    std::free(block_);
    size_ = (bytes + 4096) / 4096 * 4096;
    block_ = std::aligned_alloc(64, size_);
  }

  ~Scratch() {
    Kept& mine = kept();
    if (size_ > kKeptBytes || mine.block != nullptr) {
      std::free(block_);
      return;
    }
    mine.block = block_;
    mine.size = block_ == nullptr ? 0 : size_;
  }

  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() const { return block_; }

 private:
  struct Kept {
    void* block = nullptr;
    size_t size = 0;
    ~Kept() { std::free(block); }
  };

  static Kept& kept() {
    static thread_local Kept mine;
    return mine;
  }

  void* block_;
  size_t size_;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
