"""torch.func inside torch.compile: every map, loss and regularizer gives what it gives eagerly.

torch.compile traces torch.func by tracing the ops that it finds; a map or loss that is not made of
ops with the right derivatives would lose them without a word.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fenchel as fy
from fenchel.maps.declaration import MAPS as DECLARED
from fenchel.regularizers.registry import REGULARIZERS

N = 6
WEIGHTS = torch.arange(1.0, N + 1, dtype=torch.float64)
LEARNED = torch.tensor(1.6, dtype=torch.float64)

MAPS = {name: declared.function for name, declared in sorted(DECLARED.items())} | {
    "entmax 0.5": lambda x: fy.entmax(x, 0.5),
    "entmax 1": lambda x: fy.entmax(x, 1.0),
    "entmax 1.7": lambda x: fy.entmax(x, 1.7),
    "entmax 3": lambda x: fy.entmax(x, 3.0),
    "entmax inf": lambda x: fy.entmax(x, float("inf")),
    "entmax tensor": lambda x: fy.entmax(x, LEARNED),
    "normmax 3": lambda x: fy.normmax(x, 3.0),
}
OMEGAS = {
    name: omega() for name, omega in REGULARIZERS.items() if name not in ("squared", "zero")
} | {
    "Tsallis 0.5": fy.Tsallis(0.5),
    "Tsallis 3": fy.Tsallis(3.0),
    "Tsallis tensor": fy.Tsallis(LEARNED),
    "scaled": 0.5 * fy.Tsallis(1.5),
}
LOSSES = {
    "entmax_loss": fy.entmax_loss,
    "sparsemax_loss": fy.sparsemax_loss,
    "entmax15_loss": fy.entmax15_loss,
    "weighted": lambda x, y: fy.entmax_loss(x, y, 1.3, weight=WEIGHTS),
    "smoothed": lambda x, y: fy.entmax_loss(x, y, 1.3, label_smoothing=0.1),
} | {
    name: lambda x, y, omega=omega: fy.fenchel_young_loss(x, y, omega)
    for name, omega in OMEGAS.items()
}


def of_rows(f):
    """A number per row from a map: its probabilities, weighted."""
    return lambda x: (f(x) * WEIGHTS).sum(-1)


def backward_of_vmap(f):
    def run(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        value = f(x)
        (grad,) = torch.autograd.grad(value.sum(), x)
        return grad

    return run


def check(run, *inputs: Tensor) -> None:
    """The compiled function gives what the eager one gives, in one graph."""
    torch._dynamo.reset()
    wanted = run(*inputs)
    got = torch.compile(run, backend="eager", fullgraph=True)(*inputs)
    torch.testing.assert_close(got, wanted, atol=1e-10, rtol=1e-10)


@pytest.fixture
def x(rng) -> Tensor:
    return torch.randn(3, N, generator=rng, dtype=torch.float64)


@pytest.fixture
def v(rng) -> Tensor:
    return torch.randn(3, N, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("f", MAPS.values(), ids=MAPS.keys())
def test_maps(f, x, v):
    g = of_rows(f)

    def run(x: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.func.grad(lambda z: g(z).sum())(x),
            torch.vmap(f)(x),
            torch.vmap(torch.func.grad(g))(x),
            torch.func.jvp(f, (x,), (v,))[1],
            torch.func.jacrev(f)(x[0]),
            torch.func.jacfwd(f)(x[0]),
        )

    check(run, x, v)


@pytest.mark.parametrize("f", LOSSES.values(), ids=LOSSES.keys())
def test_losses(f, x, v):
    y = torch.tensor([0, 1, 2])

    def run(x: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.func.grad(f)(x[0], y[0]),
            torch.vmap(f)(x, y),
            torch.vmap(torch.func.grad(f))(x, y),
            torch.func.jvp(lambda z: f(z, y), (x,), (v,))[1],
            torch.func.jacrev(lambda z: f(z, y[0]))(x[0]),
            torch.func.jacfwd(lambda z: f(z, y[0]))(x[0]),
        )

    check(run, x, v)


@pytest.mark.parametrize("f", [*MAPS.values(), *LOSSES.values()], ids=[*MAPS, *LOSSES])
def test_backward_of_vmap(f, x):
    """A term of a sum of losses that has lost its graph would stop training."""
    y = torch.tensor([0, 1, 2])
    run = of_rows(f) if f in MAPS.values() else lambda x: torch.vmap(f)(x, y)
    inner = torch.vmap(run) if f in MAPS.values() else run
    wanted = backward_of_vmap(inner)(x)
    torch._dynamo.reset()
    got = backward_of_vmap(torch.compile(inner, backend="eager", fullgraph=True))(x)
    torch.testing.assert_close(got, wanted, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("omega", OMEGAS.values(), ids=OMEGAS.keys())
def test_conjugates(omega, x, v):
    def run(x: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.func.grad(lambda z: omega.conjugate(z).sum())(x),
            torch.func.jvp(omega.conjugate, (x,), (v,))[1],
        )

    check(run, x, v)


CURVED = {  # those whose second derivatives come from different formulas
    "entmax 1.7": of_rows(MAPS["entmax 1.7"]),
    "entmax 3": of_rows(MAPS["entmax 3"]),
    "entmax tensor": of_rows(MAPS["entmax tensor"]),
    "normmax": of_rows(MAPS["normmax"]),
    "renyimax": of_rows(MAPS["renyimax"]),
    "fusedmax": of_rows(MAPS["fusedmax"]),
    "entmax_loss": lambda z: fy.entmax_loss(z, torch.tensor(1)),
    "loss of Norm": lambda z: fy.fenchel_young_loss(z, torch.tensor(1), fy.Norm(2.0)),
    "conjugate": lambda z: OMEGAS["Tsallis tensor"].conjugate(z),
}


@pytest.mark.parametrize("f", CURVED.values(), ids=CURVED.keys())
def test_second_derivatives(f, x):
    check(lambda x: torch.func.hessian(f)(x), x[0])


def test_derivatives_in_alpha(x):
    """First and second, alone and mixed with those in the scores."""
    alpha = torch.tensor(1.4, dtype=torch.float64)
    y = torch.tensor([0, 1, 2])
    for f in (
        lambda x, a: of_rows(lambda z: fy.entmax(z, a))(x).sum(),
        lambda x, a: fy.entmax_loss(x, y, a),
        lambda x, a: fy.Tsallis(a).conjugate(x).sum(),
    ):
        check(lambda x, a, f=f: torch.func.grad(f, argnums=1)(x, a), x, alpha)
        check(lambda x, a, f=f: torch.func.hessian(f, argnums=1)(x, a), x, alpha)
        mixed = torch.func.jacfwd(torch.func.grad(f, argnums=1), argnums=0)
        check(lambda x, a, mixed=mixed: mixed(x, a), x, alpha)


def test_third_derivatives_and_then_a_sentence(x):
    def third(x: Tensor) -> Tensor:
        return torch.func.jacrev(torch.func.jacrev(torch.func.grad(of_rows(fy.entmax))))(x[0])

    def wanted(x: Tensor) -> Tensor:
        g = of_rows(fy.entmax)(x.requires_grad_())
        for _ in range(3):
            parts = [torch.autograd.grad(part, x, create_graph=True)[0] for part in g.reshape(-1)]
            g = torch.stack(parts)
        return g.reshape(N, N, N).detach()

    torch._dynamo.reset()
    got = torch.compile(third, backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(got, wanted(x[0].clone()), atol=1e-9, rtol=1e-9)

    def fourth(x: Tensor) -> Tensor:
        return torch.func.jacrev(lambda z: third(z[None]))(x[0])

    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"at most 3 nested derivatives inside torch\.compile"):
        torch.compile(fourth, backend="eager", fullgraph=True)(x)


def test_masks_ignored_rows_and_infinite_losses(x):
    """The expansion must not turn 0 times infinity into NaN."""
    x = x.clone()
    x[0, 3] = x[1, 2] = -torch.inf
    y = torch.tensor([0, 1, -100])
    check(lambda x: torch.func.grad(lambda z: of_rows(fy.entmax)(z).sum())(x), x)
    check(lambda x: torch.func.grad(lambda z: fy.entmax_loss(z, y, reduction="sum"))(x), x)
    check(lambda x: torch.func.jvp(lambda z: fy.entmax(z, 1.3), (x,), (x.exp(),))[1], x)


def test_agrees_with_cross_entropy(x):
    y = torch.tensor([0, 1, 2])
    torch._dynamo.reset()
    run = torch.compile(
        lambda x: torch.vmap(torch.func.grad(lambda z, y: fy.entmax_loss(z, y, 1.0)))(x, y),
        backend="eager",
        fullgraph=True,
    )
    wanted = torch.vmap(torch.func.grad(F.cross_entropy))(x, y)
    torch.testing.assert_close(run(x), wanted)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler warns of itself
def test_inductor(x, v):
    """The backend that users have."""
    torch._dynamo.reset()
    y = torch.tensor([0, 1, 2])

    def run(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        tangent = torch.func.jvp(lambda z: fy.entmax(z, 3.0), (x,), (v,))[1]
        return tangent, torch.vmap(torch.func.grad(fy.entmax_loss))(x, y)

    torch.testing.assert_close(torch.compile(run)(x, v), run(x, v))


@pytest.mark.filterwarnings("ignore")  # of the frames that torch falls back to
def test_user_defined_omegas_are_right_or_refuse(x):
    omega = fy.Regularizer.from_function(lambda p: (p * p).sum(-1))
    run = lambda x: torch.func.grad(lambda z: omega.predict(z)[0])(x)  # noqa: E731
    torch._dynamo.reset()
    try:
        got = torch.compile(run, backend="eager")(x[0])
    except Exception as error:
        assert "torch.compiler.disable" in str(error) or "from_function" in str(error)
    else:
        torch.testing.assert_close(got, run(x[0]))
