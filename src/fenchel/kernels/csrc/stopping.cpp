// The host's side of stopping.h. The host hands in functions of its own, so that the core needs
// none of its headers: for Python, taking and releasing the GIL and looking at signals.
#include "stopping.h"

#include <chrono>
#include <thread>

namespace fenchel {

namespace {

// PyGILState_Ensure, PyGILState_Release, PyErr_CheckSignals, PyErr_Fetch, PyErr_Restore.
struct Host {
  int (*lock)();
  void (*unlock)(int);
  int (*check)();
  void (*fetch)(void**, void**, void**);
  void (*restore)(void*, void*, void*);
};

Host host{};
std::atomic<bool> listens{false};

// What the host raised when it was asked.
struct Raised {
  bool held = false;
  void *type = nullptr, *value = nullptr, *trace = nullptr;
};

Raised& raised() {
  static thread_local Raised mine;
  return mine;
}

}  // namespace

bool host_says_stop() {
  if (!listens.load(std::memory_order_acquire)) return false;
  Raised& mine = raised();
  if (mine.held) return true;  // nobody has asked what it was
  const int state = host.lock();
  if (host.check() != 0) {
    host.fetch(&mine.type, &mine.value, &mine.trace);
    mine.held = true;
  }
  host.unlock(state);
  return mine.held;
}

int64_t milliseconds() {
  using namespace std::chrono;
  return duration_cast<std::chrono::milliseconds>(steady_clock::now().time_since_epoch()).count();
}

void rest(int64_t microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

bool Worker::look() {
  credit_ = kCredit;
  if (was_called_) ask();
  if (team_.status() == FENCHEL_DONE) return false;
  credit_ = 0;  // and so at the next question
  return true;
}

void Worker::ask() {
  const int64_t now = milliseconds();
  if (next_ != 0 && now >= next_ && host_says_stop()) team_.end(FENCHEL_STOPPED);
  if (next_ == 0 || now >= next_) next_ = now + kInterval;
}

void Worker::await(int others) {
  for (int spins = 0; spins < 2000; ++spins) {
    if (team_.left() == others) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  // Sleeps grow with the wait: they add little to it.
  for (int64_t pause = 20; team_.left() != others;
       pause = pause < 2000 ? pause + pause / 8 : pause) {
    rest(pause);
    ask();
  }
}

}  // namespace fenchel

void fenchel_set_host(int (*lock)(void), void (*unlock)(int), int (*check)(void),
                      void (*fetch)(void**, void**, void**), void (*restore)(void*, void*, void*)) {
  fenchel::listens.store(false, std::memory_order_release);
  if (lock == nullptr) return;
  fenchel::host = {lock, unlock, check, fetch, restore};
  fenchel::listens.store(true, std::memory_order_release);
}

void fenchel_raise(void) {
  fenchel::Raised& mine = fenchel::raised();
  if (!mine.held) return;
  mine.held = false;
  fenchel::host.restore(mine.type, mine.value, mine.trace);
}
