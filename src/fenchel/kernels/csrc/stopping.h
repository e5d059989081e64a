// How a long call hears that it should stop.
//
// A kernel runs without the host's lock, so a signal such as Ctrl-C only sets a flag there, which
// the host looks at after the call. So a loop asks: the thread that was called asks the host every
// tenth of a second, the others look at what it heard. Work is counted, and the clock is read only
// after enough of it: a short call does neither.
#pragma once

#include <omp.h>

#include <atomic>
#include <cstdint>

#include "fenchel.h"

namespace fenchel {

// Asks the host, of the thread that it called, whether to stop; the answer stays with that thread
// until fenchel_raise hands it back.
bool host_says_stop();

int64_t milliseconds();
void rest(int64_t microseconds);

// What the threads of one loop share.
class Team {
 public:
  void end(int status) { status_.store(status, std::memory_order_relaxed); }
  int status() const { return status_.load(std::memory_order_relaxed); }

  void leave() { left_.fetch_add(1, std::memory_order_release); }
  int left() const { return left_.load(std::memory_order_acquire); }

  // The next `chunk` pieces of work that nobody has.
  int64_t take(int64_t chunk) { return next_.fetch_add(chunk, std::memory_order_relaxed); }

 private:
  std::atomic<int> status_{FENCHEL_DONE}, left_{0};
  std::atomic<int64_t> next_{0};
};

// One thread of a loop.
class Worker {
 public:
  Worker(Team& team, bool was_called) : team_(team), was_called_(was_called), before_(current()) {
    current() = this;
  }
  ~Worker() { current() = before_; }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Whether to end early; `work`: about how many numbers were looked at since the last question.
  bool stop(int64_t work) {
    credit_ -= work;
    return credit_ <= 0 && look();
  }

  void fail(int status) { team_.end(status); }

  // Until all others are done. They may be long at it while this thread has to go on asking.
  void await(int others);

  static Worker*& current() {
    static thread_local Worker* here = nullptr;
    return here;
  }

 private:
  static constexpr int64_t kCredit = int64_t(1) << 16;
  static constexpr int64_t kInterval = 100;  // milliseconds

  bool look();
  void ask();

  Team& team_;
  const bool was_called_;
  Worker* const before_;  // a signal's handler may call the core from within a call
  int64_t credit_ = kCredit, next_ = 0;
};

struct Stopped {};

// The same question from deep inside of an instance, where stopping means to throw Stopped.
class StopCheck {
 public:
  StopCheck() : worker_(Worker::current()) {}
  void operator()(int64_t work) const {
    if (worker_ != nullptr && worker_->stop(work)) throw Stopped();
  }

 private:
  Worker* const worker_;
};

// body(team, worker, thread, threads) in every thread; must not throw.
template <class Body>
int in_parallel(int threads, const Body& body) {
  Team team;
#pragma omp parallel num_threads(threads) if (threads > 1)
  {
    const int mine = omp_get_thread_num(), all = omp_get_num_threads();
    Worker worker(team, mine == 0);
    body(team, worker, mine, all);
    if (mine != 0) team.leave();
    if (mine == 0 && all > 1) worker.await(all - 1);
  }
  return team.status();
}

// work(first, last, worker) once in every thread, each with an equal share of 0 to count.
template <class Work>
int for_shares(int64_t count, int threads, const Work& work) {
  return in_parallel(threads, [&](Team&, Worker& worker, int64_t mine, int64_t all) {
    const int64_t each = count / all, more = count % all;
    const int64_t first = mine * each + (mine < more ? mine : more);
    work(first, first + each + (mine < more ? 1 : 0), worker);
  });
}

// work(first, last, worker) for `chunk` pieces at a time, to whichever thread is free.
template <class Work>
int for_chunks(int64_t count, int64_t chunk, int threads, const Work& work) {
  return in_parallel(threads, [&](Team& team, Worker& worker, int, int) {
    for (int64_t first = team.take(chunk); first < count; first = team.take(chunk)) {
      if (team.status() != FENCHEL_DONE) return;
      work(first, first + chunk < count ? first + chunk : count, worker);
    }
  });
}

}  // namespace fenchel
