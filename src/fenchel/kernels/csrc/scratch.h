// A thread's scratch memory. A small block stays with the thread for its next call: fresh memory
// comes page by page, at a cost above that of many a call. A large one, or one more than all
// threads together may keep, is given back when the loop that needed it ends.
#pragma once

#include <cstdlib>

#include "table.h"

namespace fenchel {
namespace FENCHEL_ISA {

class Scratch {
 public:
  // At least `bytes` bytes on a cache line's boundary; data() is null when memory is out.
  explicit Scratch(size_t bytes) {
    // What is lent is not there: a call within a call (by a signal's handler) gets its own.
    Kept& mine = kept();
    block_ = mine.block;
    size_ = mine.size;
    mine = Kept();
    give_up(size_);
    if (block_ != nullptr && bytes <= size_) return;
    std::free(block_);
    size_ = (bytes + 4096) / 4096 * 4096;
    block_ = std::aligned_alloc(64, size_);
  }

  ~Scratch() {
    Kept& mine = kept();
    if (block_ != nullptr && mine.block == nullptr && may_keep(size_)) {
      mine.block = block_;
      mine.size = size_;
    } else {
      std::free(block_);
    }
  }

  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() const { return block_; }

 private:
  struct Kept {
    void* block = nullptr;
    size_t size = 0;
  };

  // Frees a thread's block with the thread.
  struct Owner {
    Kept mine;
    ~Owner() {
      give_up(mine.size);
      std::free(mine.block);
    }
  };

  static Kept& kept() {
    static thread_local Owner here;
    return here.mine;
  }

  void* block_;
  size_t size_;
};

}  // namespace FENCHEL_ISA
}  // namespace fenchel
