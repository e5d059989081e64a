"""Losses inside torch.compile, torch.func, forward mode, fake tensors and batched gradients."""

from __future__ import annotations

import pytest
import torch

import fenchel as fy
from tests.regularizers.cases import distributions, every_smooth_case, randn

# torch's compiler and exporter warn of themselves.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

INDEX = torch.tensor([0, 3, -100, 2])


def functions(rng):
    weight = torch.rand(5, generator=rng).double()
    soft = distributions(4, 5, rng)
    return {
        "plain": lambda s: fy.entmax_loss(s, INDEX),
        "sparsemax": lambda s: fy.sparsemax_loss(s, INDEX, reduction="sum"),
        "alpha": lambda s: fy.entmax_loss(s, INDEX, alpha=1.3),
        "weighted": lambda s: fy.entmax_loss(s, INDEX, weight=weight, label_smoothing=0.1),
        "soft": lambda s: fy.entmax_loss(s, soft, alpha=1.7),
        "cost": lambda s: fy.fenchel_young_loss(s, INDEX, fy.Zero(), cost=1.0),
        "norm": lambda s: fy.fenchel_young_loss(s, INDEX, fy.Norm(1.5)),
        "renyi": lambda s: fy.fenchel_young_loss(s, INDEX, fy.Renyi(0.5)),
    }


NAMES = list(functions(torch.Generator()))
every_function = pytest.mark.parametrize("name", NAMES)


@pytest.mark.usefixtures("backend")
@every_function
def test_compile(name, rng):
    torch._dynamo.reset()
    f = functions(rng)[name]
    scores = randn(4, 5, rng=rng).requires_grad_()
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    wanted, got = f(scores), compiled(scores)
    torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)
    gradients = [torch.autograd.grad(loss, scores)[0] for loss in (wanted, got)]
    torch.testing.assert_close(*gradients, atol=1e-12, rtol=1e-12)


def test_compile_with_inductor(rng):
    torch._dynamo.reset()
    scores = randn(4, 5, rng=rng).requires_grad_()
    alpha = torch.tensor(1.4, dtype=torch.float64, requires_grad=True)

    def f(s, a):
        return fy.entmax_loss(s, INDEX, alpha=a)

    wanted, got = f(scores, alpha), torch.compile(f, fullgraph=True)(scores, alpha)
    torch.testing.assert_close(got, wanted, atol=1e-12, rtol=1e-12)
    for mine, theirs in zip(
        torch.autograd.grad(got, (scores, alpha)),
        torch.autograd.grad(wanted, (scores, alpha)),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=1e-12)


@pytest.mark.usefixtures("backend")
@every_function
def test_func_grad_vmap_and_hessian(name, rng):
    f = functions(rng)[name]
    scores = randn(3, 4, 5, rng=rng, scale=0.3)
    each = torch.stack([f(s) for s in scores])
    torch.testing.assert_close(torch.func.vmap(f)(scores), each, atol=1e-13, rtol=1e-13)
    gradients = []
    for s in scores:
        s = s.clone().requires_grad_()
        gradients.append(torch.autograd.grad(f(s), s)[0])
    got = torch.func.vmap(torch.func.grad(f))(scores)
    torch.testing.assert_close(got, torch.stack(gradients), atol=1e-13, rtol=1e-13)
    hessian = torch.func.hessian(f)(scores[0])
    wanted = torch.autograd.functional.hessian(f, scores[0])
    torch.testing.assert_close(hessian, wanted, atol=1e-11, rtol=1e-11)


@pytest.mark.usefixtures("backend")
@every_function
def test_forward_mode(name, rng):
    f = functions(rng)[name]
    scores, direction = randn(4, 5, rng=rng), randn(4, 5, rng=rng)
    value, slope = torch.func.jvp(f, (scores,), (direction,))
    leaf = scores.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(f(leaf), leaf)
    torch.testing.assert_close(value, f(scores))
    torch.testing.assert_close(slope, (gradient * direction).sum(), atol=1e-12, rtol=1e-12)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(scores, direction)
        tangent = torch.autograd.forward_ad.unpack_dual(f(dual)).tangent
    torch.testing.assert_close(tangent, slope, atol=1e-12, rtol=1e-12)


@pytest.mark.usefixtures("backend")
def test_alpha_in_func(rng):
    scores = randn(4, 5, rng=rng)
    alpha = torch.tensor(1.4, dtype=torch.float64)

    def f(a, s):
        return fy.entmax_loss(s, INDEX, alpha=a)

    leaf = alpha.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(f(leaf, scores), leaf)
    torch.testing.assert_close(torch.func.grad(f)(alpha, scores), wanted)
    batch = torch.stack([alpha, alpha + 0.3])
    got = torch.func.vmap(f, in_dims=(0, None))(batch, scores)
    torch.testing.assert_close(got, torch.stack([f(a, scores) for a in batch]))


@pytest.mark.usefixtures("backend")
@every_smooth_case
def test_func_on_regularizers(case, rng):
    scores, target = randn(4, 5, rng=rng, scale=0.3), torch.tensor([0, 1, 2, 3])
    loss = torch.func.vmap(case.omega.loss)(scores, target)
    torch.testing.assert_close(loss, case.omega.loss(scores, target), atol=1e-12, rtol=1e-12)
    gradient = torch.func.vmap(torch.func.grad(case.omega.conjugate))(scores)
    torch.testing.assert_close(gradient, case.omega.predict(scores), atol=1e-12, rtol=1e-12)


@every_function
def test_fake_tensors_and_meta(name, rng):
    from torch._subclasses.fake_tensor import FakeTensorMode

    f = functions(rng)[name]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        scores = mode.from_tensor(torch.zeros(4, 5, dtype=torch.float64)).requires_grad_()
        loss = f(scores)
        assert loss.shape == ()
        loss.backward()
        assert scores.grad.shape == (4, 5)


def test_batched_gradients(rng):
    scores = randn(4, 5, rng=rng).requires_grad_()
    losses = fy.entmax_loss(scores, torch.tensor([0, 3, 1, 2]), reduction="none")
    several = torch.eye(4, dtype=torch.float64)
    (got,) = torch.autograd.grad(losses, scores, several, is_grads_batched=True, retain_graph=True)
    each = [torch.autograd.grad(losses, scores, row, retain_graph=True)[0] for row in several]
    torch.testing.assert_close(got, torch.stack(each))


def test_backward_twice_and_in_place(rng):
    scores = randn(4, 5, rng=rng).requires_grad_()
    loss = fy.entmax_loss(scores, INDEX)
    first = torch.autograd.grad(loss, scores, retain_graph=True)[0]
    first.mul_(3.0)
    second = torch.autograd.grad(loss, scores)[0]
    torch.testing.assert_close(first, 3 * second)
    hidden = scores * 1
    loss = fy.entmax_loss(hidden, INDEX)
    with torch.no_grad():
        hidden.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_export(rng):
    class Model(torch.nn.Module):
        def forward(self, scores, target):
            return fy.sparsemax_loss(scores, target)

    scores, target = randn(4, 5, rng=rng, dtype=torch.float32), torch.tensor([0, 1, 2, 3])
    program = torch.export.export(Model(), (scores, target))
    torch.testing.assert_close(program.module()(scores, target), fy.sparsemax_loss(scores, target))
