// What must be refused, and what the host stops. Included by fuzz_kernels.cpp.
#pragma once

namespace {

void expect(int got, int wanted, const char* name) {
  if (got != wanted) fail("a wrong status", name, got);
}

// Numbers that mean nothing are refused before anything is read or written: null would crash.
void error_cases() {
  const std::vector<double> scores(6), alpha(1, 1.5);
  const std::vector<float> x(6);
  std::vector<float> loss(2, 7);
  const std::vector<int64_t> target = {0, 3};  // of rows with three entries
  expect(fenchel_entmax_loss_f32(x.data(), 2, 3, 1, alpha.data(), 0, target.data(), loss.data(),
                                 nullptr, 0, nullptr, nullptr, nullptr),
         FENCHEL_OUT_OF_RANGE, "entmax_loss");
  if (loss[0] != 7 || loss[1] != 7) fail("something was written", "entmax_loss", loss[0]);
  expect(fenchel_groups_forward_f32(2, x.data(), nullptr, nullptr, nullptr, 2, 3, alpha.data(), 0),
         FENCHEL_OUT_OF_RANGE, "groups_forward");
  if (fenchel_kind_named("NO_KIND") != -1) fail("a kind that does not exist", "kind", 0);
  for (const int kind : {-1, static_cast<int>(FENCHEL_KIND_COUNT)}) {
    if (fenchel_most_parts(kind, nullptr) != -1) fail("a wrong answer", "most_parts", kind);
    expect(fenchel_best_parts(kind, scores.data(), 1, 6, nullptr, nullptr, 1, nullptr, 1),
           FENCHEL_OUT_OF_RANGE, "best_parts");
    expect(fenchel_active_set(kind, scores.data(), 1, 6, 6, nullptr, nullptr, 1, 9, 1e-9, 0,
                              nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
           FENCHEL_OUT_OF_RANGE, "active_set");
  }
  for (const int omega : {-1, 2}) {
    const double* at = scores.data();
    expect(fenchel_sequence_smoothed(omega, at, 1, 6, nullptr, nullptr, nullptr, nullptr),
           FENCHEL_OUT_OF_RANGE, "sequence_smoothed");
    expect(fenchel_sequence_product(omega, at, at, 1, 6, nullptr, nullptr, nullptr),
           FENCHEL_OUT_OF_RANGE, "sequence_product");
    expect(fenchel_alignment_smoothed(omega, 1.0, at, 1, 6, nullptr, nullptr, nullptr, nullptr),
           FENCHEL_OUT_OF_RANGE, "alignment_smoothed");
    expect(fenchel_alignment_product(omega, 1.0, at, at, 1, 6, nullptr, nullptr, nullptr),
           FENCHEL_OUT_OF_RANGE, "alignment_product");
  }
}

int locked = 0, raised = 0;
char pending[3];  // what the host raised: three addresses

// A host that says stop whenever it is asked: long calls return, release what they hold (or the
// sanitizer speaks up), and what was fetched is raised again, once.
void stop_case() {
  fenchel_set_host([] { return ++locked; },
                   [](int state) {
                     if (state != locked--) fail("another state", "unlock", state);
                   },
                   [] { return 1; },
                   [](void** type, void** value, void** trace) {
                     *type = pending;
                     *value = pending + 1;
                     *trace = pending + 2;
                   },
                   [](void* type, void* value, void* trace) {
                     ++raised;
                     if (type != pending || value != pending + 1 || trace != pending + 2) {
                       fail("something else was raised", "raise", raised);
                     }
                   });
  const int64_t n = 2000;
  const double alpha = 1.3;
  int status = FENCHEL_DONE;
  for (int64_t rows = 64; status == FENCHEL_DONE; rows *= 4) {  // until it takes long enough
    if (rows > 100000) fail("nobody was asked", "entmax_sparse", 0);
    std::vector<float> x(rows * n);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 997) * 1e-3f;
    std::vector<int64_t> sizes(rows), starts(rows + 1);
    std::vector<double> threshold(rows);
    void* handle = nullptr;
    status = fenchel_entmax_sparse_f32(x.data(), rows, n, 1, &alpha, 0, sizes.data(), starts.data(),
                                       threshold.data(), &handle);
    if (handle != nullptr) fenchel_sparse_take_f32(handle, nullptr, nullptr);
  }
  expect(status, FENCHEL_STOPPED, "entmax_sparse");
  fenchel_raise();
  fenchel_raise();  // nothing is left
  if (raised != 1 || locked != 0) fail("raised, or locked, not once", "raise", raised);

  status = FENCHEL_DONE;
  for (int64_t size = 40; status == FENCHEL_DONE; size *= 2) {
    if (size > 1000) fail("nobody was asked", "active_set", 0);
    const int64_t layout[] = {size, size}, sizes[] = {size, size};
    std::vector<double> scores(size * size), means(size * size);
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<double>(i * i % 101) * 1e-2;
    double gap;
    int64_t iterations, ended, widest, longest;
    void* handle = nullptr;
    status = fenchel_active_set(FENCHEL_ASSIGNMENT, scores.data(), 1, size * size, size * size,
                                layout, sizes, 2, 1000, 1e-9, 1, means.data(), &gap, &iterations,
                                &ended, &widest, &longest, &handle);
    if (handle != nullptr) {
      fenchel_active_set_take(handle, 1, widest, longest, nullptr, nullptr, nullptr);
    }
  }
  expect(status, FENCHEL_STOPPED, "active_set");
  fenchel_raise();
  if (raised != 2 || locked != 0) fail("raised, or locked, not once", "raise", raised);
  fenchel_set_host(nullptr, nullptr, nullptr, nullptr, nullptr);
}

}  // namespace
