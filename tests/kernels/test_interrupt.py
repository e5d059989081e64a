"""A native call lets Python run its signal handlers, stops if one raises, and leaves no trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise

import pytest
import torch

import fenchel as fy
from fenchel.kernels.native import _library
from fenchel.kernels.native._door import NativeFunction

pytestmark = [
    pytest.mark.skipif(_library.LIBRARY is None, reason=_library.REASON),
    pytest.mark.skipif(os.name != "posix", reason="signals and timers of POSIX"),
]

# All times are of the CPU: another process that has it does not count.
now = time.process_time
LONG = 0.4  # seconds: long enough for several questions, which come every tenth


def rows(n: int, width: int) -> torch.Tensor:
    return torch.randn(width, dtype=torch.float64).repeat(n, 1)


def products(n: int) -> torch.Tensor:
    """Costs that make assignments search long."""
    return torch.outer(torch.arange(n), torch.arange(n)).double()


def chain(n: int, tags: int, each: bool = False) -> fy.SequenceScores:
    shape = (n - 1, tags, tags) if each else (tags, tags)
    return fy.SequenceScores(torch.randn(n, tags), torch.randn(*shape))


def doubly(omega, scores):
    """A gradient of a gradient: the products with the Hessian."""
    tensors = [
        x.requires_grad_()
        for x in (scores if isinstance(scores, tuple) else (scores,))
        if x is not None
    ]
    value = omega.conjugate(scores).sum()
    first = torch.autograd.grad(value, tensors, create_graph=True)
    torch.autograd.grad(sum((g * torch.randn_like(g)).sum() for g in first), tensors)


def attention(n: int, grad: bool) -> None:
    q, k, v = (torch.randn(1, 2, n, 64, requires_grad=grad) for _ in range(3))
    out = fy.entmax_attention(q, k, v)
    if grad:
        out.sum().backward()


def backward_of(map_, n: int) -> None:
    x = rows(n, 100).requires_grad_()
    alpha = torch.full((n, 1), 1.3, dtype=torch.float64, requires_grad=True)
    map_(x, alpha).square().sum().backward()


# A job of size n, and the first size to try: it is doubled until the job is long.
JOBS = {
    "rows": (lambda n: fy.renyimax(rows(n, 1000), 0.5), 4000),
    "short rows": (lambda n: fy.entmax(rows(n, 30), 1.37), 100_000),
    "columns": (lambda n: fy.renyimax(rows(n, 1000).T.contiguous(), 0.5, 0), 2000),
    "rows backward": (lambda n: backward_of(fy.normmax, n), 20_000),
    "nonzeros": (lambda n: fy.sparse_entmax(rows(n, 200), 1.37), 40_000),
    "loss": (lambda n: fy.entmax_loss(rows(n, 200), torch.zeros(n).long(), 1.37), 40_000),
    "groups": (lambda n: fy.oscarmax(rows(n, 500), 0.1), 1000),
    "attention": (lambda n: attention(n, False), 2000),
    "attention backward": (lambda n: attention(n, True), 1000),
    "best sequence": (lambda n: fy.Sequence(200).argmax(chain(n, 200)), 2000),
    "best tree": (lambda n: fy.DependencyTree().argmax(-torch.rand(n, n + 1).cumsum(1)), 500),
    "best projective tree": (
        lambda n: fy.DependencyTree(projective=True).argmax(torch.randn(n, n + 1)),
        300,
    ),
    "best assignment": (lambda n: fy.Assignment().argmax(-products(n)), 300),
    "best alignment": (lambda n: fy.Alignment().argmax(torch.randn(n, 500, 500)), 50),
    "sums of sequences": (lambda n: fy.Marginals(fy.Sequence(200)).predict(chain(n, 200)), 500),
    "sums of sequences, each": (
        lambda n: fy.Marginals(fy.Sequence(50)).predict(chain(n, 50, each=True)),
        200,
    ),
    "curvature of sequences": (
        lambda n: doubly(fy.Marginals(fy.Sequence(100)), chain(n, 100)),
        300,
    ),
    "sparse sums of sequences": (
        lambda n: doubly(fy.SmoothedDP(fy.Sequence(50), "l2"), chain(n, 50)),
        200,
    ),
    "samples": (lambda n: fy.Marginals(fy.Sequence(50)).sample(chain(100, 50), n), 2000),
    "k best": (lambda n: fy.Marginals(fy.Sequence(50)).k_best(chain(100, 50), n), 10),
    "sums of trees": (
        lambda n: fy.Marginals(fy.DependencyTree()).predict(torch.randn(n, n + 1)),
        200,
    ),
    "sums of projective trees": (
        lambda n: fy.Marginals(fy.DependencyTree(projective=True)).predict(torch.randn(n, n + 1)),
        200,
    ),
    "sums of alignments": (
        lambda n: doubly(fy.SmoothedDP(fy.Alignment()), torch.randn(n, 200, 200)),
        20,
    ),
    "active set of trees": (
        lambda n: fy.SparseMAP(fy.DependencyTree(), gamma=9.0).predict(torch.randn(n, 24, 25)),
        8,
    ),
    "active set of sequences": (
        lambda n: fy.SparseMAP(fy.Sequence(5), gamma=100.0).predict(torch.randn(n, 5)),
        20,
    ),
    "active set of assignments": (
        lambda n: fy.SparseMAP(fy.Assignment(), gamma=9.0).predict(torch.randn(n, 12, 12)),
        8,
    ),
    "active set of subsets": (
        lambda n: fy.SparseMAP(fy.KSubsets(3), gamma=100.0).predict(torch.randn(n)),
        50,
    ),
}


@pytest.fixture
def ticks():
    """Times at which a handler ran, of a signal that comes every 20 ms."""
    seen: list[float] = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(now()))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    yield seen
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", JOBS)
def test_handlers_run_during_every_kind_of_call(name, ticks, monkeypatch):
    """All that such a job does may be one native call: without questions no handler runs in it."""
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(0)
    job, n = JOBS[name]
    longest = {"took": 0.0, "silent": 0.0}

    def measured(call):
        def run(*arguments):
            start = now()
            ticks.clear()
            status = call(*arguments)
            end = now()
            if end - start > longest["took"]:
                heard = [start, *(t for t in ticks if t < end), end]
                gaps = [b - a for a, b in pairwise(heard)]
                longest.update(took=end - start, silent=max(gaps))
            return status

        return run

    watch_native_calls(monkeypatch, measured)
    for _ in range(12):
        job(n)
        if longest["took"] > LONG:
            break
        assert longest["took"] > 0  # or nothing is watched, and the job would grow for ever
        n *= 2
    assert longest["took"] > LONG
    # A slow machine stretches everything, but silence must end before the call does.
    assert longest["silent"] < min(1.0, 0.9 * longest["took"])


def outcome(code: str, *, after: float = 1.0, threads: int = 1) -> str:
    """What a program prints that gets SIGINT from itself ``after`` seconds."""
    program = f"""
import os, signal, sys, threading, time, torch
import fenchel as fy
torch.manual_seed(0)
torch.set_num_threads({threads})
scores = torch.randn(8, 70, 71)
endless = fy.SparseMAP(fy.DependencyTree(), gamma=100.0)
short = lambda: fy.SparseMAP(fy.DependencyTree()).predict(torch.ones(2, 5, 6)).sum().item()
def interrupt():
    global sent
    time.sleep({after})
    sent = time.process_time()
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
waited = lambda: "at once" if time.process_time() - sent < {threads} else time.process_time() - sent
{code}
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout.strip() + done.stderr.strip()


@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c_stops_a_solve_and_the_library_goes_on(threads):
    code = """
try:
    endless.predict(scores)
except KeyboardInterrupt:
    print("stopped", waited(), short())
"""
    assert outcome(code, threads=threads) == "stopped at once 10.0"


def test_ctrl_c_is_heard_while_only_another_thread_works():
    """Instances of length 1 are done at once; whichever thread has the long one, the call stops."""
    code = """
lengths = torch.ones(8, dtype=torch.long)
for long in (0, 7):
    lengths[long] = 70
    try:
        endless.predict(scores, lengths=lengths)
    except KeyboardInterrupt:
        print("stopped", waited())
    lengths[long] = 1
    threading.Thread(target=interrupt, daemon=True).start()
"""
    assert outcome(code, threads=2).splitlines() == ["stopped at once"] * 2


def test_ctrl_c_stops_a_backward_pass():
    code = """
scores = torch.randn(50_000, 300, dtype=torch.float64, requires_grad=True)
alpha = torch.full((50_000, 1), 1.3, dtype=torch.float64, requires_grad=True)
try:
    p = fy.normmax(scores, alpha)
    while True:
        torch.autograd.grad(p.sum(), (scores, alpha), retain_graph=True)
except KeyboardInterrupt:
    print("stopped", waited(), short())
"""
    assert outcome(code, after=3.0) == "stopped at once 10.0"


def test_a_handler_that_returns_lets_the_call_finish():
    """It runs at once all the same; and it may call the core, which is busy, itself."""
    code = """
said = []
signal.signal(signal.SIGINT, lambda *_: said.append((waited(), short())))
x = torch.randn(1000, dtype=torch.float64).repeat(5_000, 1)
while not said:
    got = fy.renyimax(x, 0.5)
print(*said[0], torch.equal(got, fy.renyimax(x[:1], 0.5).expand_as(got)))
"""
    assert outcome(code) == "at once 10.0 True"


def test_a_signal_that_is_ignored_stays_ignored():
    code = """
signal.signal(signal.SIGINT, signal.SIG_IGN)
short_tree = fy.SparseMAP(fy.DependencyTree(), gamma=100.0, max_iter=400)
short_tree.predict(scores)
print("finished", short())
"""
    assert outcome(code, after=0.2) == "finished 10.0"


def test_another_exception_of_a_handler_comes_through():
    code = """
def leave(*_):
    raise TimeoutError("enough")
signal.signal(signal.SIGINT, leave)
try:
    endless.predict(scores)
except TimeoutError as error:
    print(error, waited(), short())
"""
    assert outcome(code) == "enough at once 10.0"


def test_in_another_thread_ctrl_c_belongs_to_the_main_thread():
    code = """
result = []
omega = fy.SparseMAP(fy.KSubsets(3), gamma=100.0)
solve = lambda: result.append(omega.predict(torch.arange(900.0)).sum().item())
work = threading.Thread(target=solve)
work.start()
try:
    while True:
        time.sleep(0.01)
except KeyboardInterrupt:
    print("main", waited())
work.join()
print(result)
"""
    assert outcome(code).splitlines() == ["main at once", "[3.0]"]


def watch_native_calls(monkeypatch, wrapped):
    """Replace what every call of the core goes through."""
    call = NativeFunction.__call__

    def watched(self, *arguments):
        return wrapped(partial(call, self))(*arguments)

    monkeypatch.setattr(NativeFunction, "__call__", watched)
