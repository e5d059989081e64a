"""Tensors that are not plain, through every public function and structure: right, or a sentence.

Native code sees pointers. A tensor without memory of its own (fake, wrapped, lazily zero) or with
entries that are not what lies in memory (lazily negated) must never get there, and nothing that
torch records may be computed behind its back.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from torch.utils.flop_counter import FlopCounterMode

import fenchel as fy
from fenchel.maps.declaration import MAPS

Y = torch.tensor([0, 3, 2])
TREE = fy.DependencyTree()
WEIGHT = torch.linspace(-1, 1, 24).reshape(4, 6)


@dataclass(frozen=True)
class Case:
    """A function of one floating tensor, differentiable, and the shape that it takes."""

    call: Callable[[Tensor], Tensor]
    shape: tuple[int, ...] = (3, 6)
    solves: bool = False  # whether it reads values: then no graph can hold it
    sized: bool = False  # whether the size of its result depends on values


def attention(**kwargs) -> Callable[[Tensor], Tensor]:
    return lambda x: fy.entmax_attention(x, x, x, **kwargs)


CASES = {
    **{name: Case(declared.function) for name, declared in sorted(MAPS.items())},
    "entmax 1.3": Case(partial(fy.entmax, alpha=1.3)),
    "entmax 0.5": Case(partial(fy.entmax, alpha=0.5)),
    "entmax dim 0": Case(partial(fy.entmax, dim=0)),
    "entmax per row": Case(partial(fy.entmax, alpha=torch.tensor([[1.2], [1.5], [2.5]]))),
    "entmax masked": Case(partial(fy.entmax, mask=torch.arange(6) < 4)),
    "sparse_entmax": Case(lambda x: fy.sparse_entmax(x).values, sized=True),
    "entmax_loss": Case(lambda x: fy.entmax_loss(x, Y)),
    "sparsemax_loss": Case(lambda x: fy.sparsemax_loss(x, Y, reduction="none")),
    "entmax15_loss": Case(lambda x: fy.entmax15_loss(x, Y, reduction="sum")),
    "entmax_loss of distributions": Case(lambda x: fy.entmax_loss(x, torch.full((3, 6), 1 / 6))),
    "norm loss": Case(lambda x: fy.fenchel_young_loss(x, Y, fy.Norm(2.0))),
    "conjugate": Case(lambda x: fy.Tsallis(1.5).conjugate(x)),
    "linear_entmax_loss": Case(lambda x: fy.linear_entmax_loss(x, WEIGHT.to(x.dtype), Y)),
    "attention": Case(attention(), (2, 2, 5, 4)),
    "causal attention": Case(attention(is_causal=True), (2, 2, 5, 4)),
    "masked attention": Case(attention(attn_mask=torch.ones(5, 5).bool().tril()), (2, 2, 5, 4)),
    "attention per head": Case(attention(alpha=torch.tensor([1.2, 2.0])), (2, 2, 5, 4)),
    "MAP": Case(lambda x: fy.MAP(TREE).conjugate(x), (2, 3, 4), solves=True),
    "Marginals of trees": Case(fy.Marginals(TREE).predict, (2, 3, 4), solves=True),
    "SparseMAP of trees": Case(fy.SparseMAP(TREE).predict, (2, 3, 4), solves=True),
    "Marginals of chains": Case(fy.Marginals(fy.Sequence(4)).predict, (2, 3, 4), solves=True),
    "SparseMAP of chains": Case(fy.SparseMAP(fy.Sequence(4)).predict, (2, 3, 4), solves=True),
    "SmoothedDP": Case(fy.SmoothedDP(fy.Alignment()).predict, (2, 3, 4), solves=True),
    "SparseMAP of assignments": Case(fy.SparseMAP(fy.Assignment()).predict, (3, 3), solves=True),
    "SparseMAP of subsets": Case(fy.SparseMAP(fy.KSubsets(2)).predict, solves=True),
    "Marginals of subsets": Case(fy.Marginals(fy.KSubsets(2)).predict, solves=True),
    "soft_dtw": Case(fy.soft_dtw, (2, 3, 4), solves=True),
    "sinkhorn": Case(fy.sinkhorn, (3, 3), solves=True),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


class Plain(torch.Tensor):
    """A subclass that adds nothing."""


def make(case: Case, seed: int = 0) -> Tensor:
    return torch.randn(case.shape, generator=torch.Generator().manual_seed(seed))


def right_or_refused(run: Callable[[], Tensor], wanted: Tensor) -> bool:
    """Whether ``run`` answered; if it did not, it said why in a sentence."""
    try:
        got = run()
    except fy.FenchelError as error:
        assert str(error).endswith(".") and "\n" not in str(error) and len(str(error)) < 400
        return False
    while isinstance(got, TwoTensor):
        assert torch.equal(got.a, got.b)
        got = got.a
    torch.testing.assert_close(got.as_subclass(Tensor), wanted)
    return True


def test_nothing_else_hands_out_pointers():
    root = Path(fy.__file__).parent
    doors = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if "data_ptr" in path.read_text() or "from_address" in path.read_text()
    }
    assert doors == {"kernels/native/_door.py"}


@every_case
def test_wrapped_tensors(case):
    x = make(case)
    with torch.no_grad():
        answered = right_or_refused(lambda: case.call(TwoTensor(x, x.clone())), case.call(x))
    assert answered == (not case.solves and not case.sized) or case.sized


@every_case
def test_subclasses_that_add_nothing(case):
    x = make(case)
    assert right_or_refused(lambda: case.call(x.as_subclass(Plain)), case.call(x))


@every_case
def test_tensors_that_are_lazily_negated(case):
    x = make(case)
    lazy = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert lazy.is_neg()
    assert right_or_refused(lambda: case.call(lazy), case.call(x))


@every_case
def test_tensors_that_are_lazily_zero(case):
    zero = torch._efficientzerotensor(case.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a plan of zeros needs no iterations
        assert right_or_refused(lambda: case.call(zero), case.call(torch.zeros(case.shape)))


@every_case
@pytest.mark.parametrize("known", [True, False], ids=["all fake", "real tensors in the mode"])
def test_fake_tensors(case, known):
    """Shapes and dtypes, if the structure of the answer does not depend on values."""
    real = make(case)
    wanted = case.call(real)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        x = mode.from_tensor(real) if known else real
        try:
            got = case.call(x)
        except fy.FenchelError as error:
            assert str(error).endswith(".") and (case.solves or case.sized)
        else:
            assert not case.solves
            assert got.shape == wanted.shape and got.dtype == wanted.dtype


@every_case
@pytest.mark.parametrize("how", ["jit.trace", "make_fx"])
def test_what_is_recorded_runs_again(case, how):
    """A recorded graph gives, on other input, what the function gives; or nothing is recorded."""
    first, other = make(case), make(case, seed=1)

    def record() -> Callable[[Tensor], Tensor]:
        if how == "jit.trace":
            return torch.jit.trace(lambda x: case.call(x), (first,), check_trace=False)
        return make_fx(lambda x: case.call(x), tracing_mode="real")(first)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer, of sizes that become constants
        try:
            graph = record()
        except fy.FenchelError as error:
            assert str(error).endswith(".") and case.solves
            return
    assert not case.solves
    if not case.sized:
        torch.testing.assert_close(graph(other), case.call(other))


@every_case
def test_modes_that_run_what_they_see(case):
    x = make(case).requires_grad_()
    wanted = case.call(x)
    grads = torch.autograd.grad(wanted.sum(), x)
    with FlopCounterMode(display=False):
        got = case.call(x)
        assert torch.equal(got, wanted) or torch.allclose(got, wanted, atol=1e-6)
        torch.testing.assert_close(torch.autograd.grad(got.sum(), x), grads)


@every_case
def test_checkpointing(case):
    x = make(case).requires_grad_()
    wanted = torch.autograd.grad(case.call(x).sum(), x)
    got = checkpoint(case.call, x, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), x), wanted)

    def policy(_, op, *__, **___):
        ours = op.namespace == "fenchel"
        return CheckpointPolicy.MUST_SAVE if ours else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = partial(create_selective_checkpoint_contexts, policy)
    got = checkpoint(case.call, x, use_reentrant=False, context_fn=contexts)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), x), wanted)


@every_case
def test_batched_gradients(case):
    """``is_grads_batched``: a gradient that has no memory either."""
    x = make(case).requires_grad_()
    out = case.call(x)
    batch = torch.stack([torch.ones_like(out), torch.linspace(0, 1, out.numel()).view_as(out)])
    wanted = torch.stack(
        [torch.autograd.grad(out, x, g, retain_graph=True)[0] for g in batch]
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has no batching rule for some ops, and says so
        try:
            (got,) = torch.autograd.grad(out, x, batch, is_grads_batched=True)
        except fy.FenchelError as error:
            assert str(error).endswith(".") and "\n" not in str(error)
        except RuntimeError as error:  # torch's own, of ops that it cannot batch
            assert "Batching rule not implemented" in str(error) and case.sized
        else:
            torch.testing.assert_close(got, wanted)


ARGUMENTS = {
    "target": lambda w: fy.entmax_loss(torch.ones(3, 6), w(Y)),
    "mask": lambda w: fy.entmax(torch.ones(3, 6), mask=w(torch.arange(6) < 4)),
    "alpha": lambda w: fy.entmax(torch.ones(3, 6), w(torch.tensor(1.5))),
    "attn_mask": lambda w: attention(attn_mask=w(torch.ones(5, 5).bool()))(torch.ones(2, 2, 5, 4)),
    "alpha of heads": lambda w: attention(alpha=w(torch.tensor([1.5, 2])))(torch.ones(2, 2, 5, 4)),
    "target of the output layer": lambda w: fy.linear_entmax_loss(torch.ones(3, 6), WEIGHT, w(Y)),
    "lengths": lambda w: fy.Marginals(TREE).predict(
        torch.ones(2, 3, 4), lengths=w(torch.tensor([2, 3]))
    ),
    "heads": lambda w: fy.SparseMAP(TREE).loss(
        torch.ones(2, 3, 4), w(torch.tensor([[0, 1, 1], [2, 0, 2]]))
    ),
}


@pytest.mark.parametrize("call", ARGUMENTS.values(), ids=ARGUMENTS.keys())
@pytest.mark.parametrize(
    "wrap", [lambda x: TwoTensor(x, x.clone()), lambda x: x.as_subclass(Plain)]
)
def test_other_arguments(call, wrap):
    with torch.no_grad():
        wanted = call(lambda x: x)
        right_or_refused(lambda: call(wrap), wanted)


def test_a_default_device_does_not_matter():
    x = torch.randn(2, 2, 5, 4)
    wanted = fy.entmax(x), attention()(x), fy.entmax_loss(torch.ones(3, 6), Y)
    with torch.device("meta"):
        got = fy.entmax(x), attention()(x), fy.entmax_loss(torch.ones(3, 6, device="cpu"), Y)
    torch.testing.assert_close(got, wanted)
