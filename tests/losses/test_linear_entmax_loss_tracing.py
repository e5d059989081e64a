"""`fy.linear_entmax_loss` inside torch.compile; torch.func and second derivatives are refused."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import fenchel as fy
from tests.losses.linear_cases import gradients, make

compiled = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's, of itself


def assert_compiles(function, inputs, **kwargs):
    torch._dynamo.reset()
    wanted, got = function(*inputs), torch.compile(function, fullgraph=True, **kwargs)(*inputs)
    torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(
        gradients(got, inputs), gradients(wanted, inputs), atol=1e-12, rtol=1e-12
    )


OPTIONS = {
    "plain": {},
    "weighted": {"class_weight": torch.linspace(0.5, 2, 9).double(), "reduction": "none"},
    "smoothed": {"label_smoothing": 0.1, "reduction": "sum"},
}


@compiled
@pytest.mark.parametrize("options", OPTIONS)
def test_compile_aot_eager(options, backend, rng):
    hidden, weight, bias, target = make((3, 4), 9, 5, rng, ignored=-100)
    alpha = torch.tensor(1.4, dtype=torch.float64, requires_grad=True)

    def f(h, w, b, a):
        return fy.linear_entmax_loss(h, w, target, a, bias=b, **OPTIONS[options])

    assert_compiles(f, (hidden, weight, bias, alpha), backend="aot_eager")


@compiled
def test_compile_inductor_with_turned_weights(rng):
    hidden, weight, _, target = make(12, 9, 5, rng)
    turned = weight.detach().t().contiguous().t().requires_grad_()
    other = hidden.detach().t().contiguous().t().requires_grad_()
    with torch._inductor.utils.fresh_cache():
        assert_compiles(lambda h, w: fy.linear_entmax_loss(h, w, target), (other, turned))


@pytest.mark.parametrize("with_slope", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@compiled
def test_opcheck(with_slope, dtype, backend, rng):
    hidden, weight, bias, target = make(5, 9, 4, rng, dtype=dtype)
    alpha = torch.tensor([1.5], requires_grad=with_slope)
    arguments = (hidden, weight, bias, target, alpha, True, with_slope, False)
    torch.library.opcheck(torch.ops.fenchel.linear_entmax_loss, arguments)


def test_a_second_derivative_is_refused(backend, rng):
    hidden, weight, _, target = make(5, 9, 4, rng)
    loss = fy.linear_entmax_loss(hidden, weight, target)
    with pytest.raises(fy.FenchelError, match=r"expected no second derivative; use `fy.entmax_l"):
        torch.autograd.grad(loss, hidden, create_graph=True)


TRANSFORMS = {
    "vmap": lambda f, x: torch.func.vmap(f)(torch.stack([x, x])),
    "grad": lambda f, x: torch.func.grad(f)(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
    "hessian": lambda f, x: torch.func.hessian(f)(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_refused(name, backend, rng):
    hidden, weight, _, target = make(5, 9, 4, rng)

    def f(h):
        return fy.linear_entmax_loss(h, weight.detach(), target)

    with pytest.raises(fy.FenchelError, match=r"expected no torch\.func and no forward mode"):
        TRANSFORMS[name](f, hidden.detach())


def test_forward_mode_is_refused(backend, rng):
    hidden, weight, _, target = make(5, 9, 4, rng)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(hidden.detach(), hidden.detach())
        with pytest.raises(fy.FenchelError, match="no forward mode"):
            fy.linear_entmax_loss(dual, weight, target)


def test_vmap_of_the_registered_op_is_refused(backend, rng):
    hidden, weight, _, target = make((2, 5), 9, 4, rng)
    op, alpha = torch.ops.fenchel.linear_entmax_loss, torch.tensor([1.5])
    with pytest.raises(fy.FenchelError, match=r"expected no torch\.func\.vmap"):
        torch.func.vmap(lambda h, y: op(h, weight, None, y, alpha, False, False, False))(
            hidden, target
        )


def test_backward_twice_and_in_place(backend, rng):
    hidden, weight, _, target = make(5, 9, 4, rng)
    loss = fy.linear_entmax_loss(hidden, weight, target)
    first = torch.autograd.grad(loss, weight, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(loss, weight)[0])
    loss = fy.linear_entmax_loss(hidden, weight, target)
    with torch.no_grad():
        weight.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("sparse_grad", [False, True])
def test_checkpointing(sparse_grad, backend, rng):
    hidden, weight, bias, target = make(5, 30, 4, rng)

    def f(h, w, b):
        return fy.linear_entmax_loss(h, w, target, bias=b, sparse_grad=sparse_grad)

    inputs = (hidden, weight, bias)
    got = torch.autograd.grad(checkpoint(f, *inputs, use_reentrant=False), inputs)
    for mine, theirs in zip(got, torch.autograd.grad(f(*inputs), inputs), strict=True):
        assert torch.equal(mine.to_dense(), theirs.to_dense())


@compiled
def test_backward_op_keeps_its_promises(backend, rng):
    """Strides too: the compiler plans memory with what the fake kernel says."""
    hidden, weight, bias, target = make(6, 9, 4, rng)
    turned = [x.detach().t().contiguous().t() for x in (hidden, weight)]
    alpha = torch.tensor([1.5], dtype=torch.float64)
    op = torch.ops.fenchel.linear_entmax_loss
    _, _, *lists, dense = op(*turned, bias.detach(), target, alpha, True, False, False)
    grad = torch.ones(6, dtype=torch.float64)
    arguments = (grad, *turned, bias.detach(), target, alpha, *lists, dense)
    torch.library.opcheck(torch.ops.fenchel.linear_entmax_loss_backward, arguments)
