"""Regularizers that users write: the same contract as ours, by a solver and implicit gradients."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import fenchel as fy

F64 = torch.float64
INF = math.inf
from_function = fy.Regularizer.from_function


def gini(p: Tensor) -> Tensor:
    return 0.5 * (p * p).sum(-1)


def shannon(p: Tensor) -> Tensor:
    return (p * p.clamp_min(1e-300).log()).sum(-1)


def tsallis15(p: Tensor) -> Tensor:
    return (p * p.sqrt() - p).sum(-1) / 0.75


def tsallis3(p: Tensor) -> Tensor:
    return (p**3 - p).sum(-1) / 6


def squared_norm(p: Tensor) -> Tensor:
    return 0.5 * torch.linalg.vector_norm(p, 1.5, dim=-1) ** 2


def norm(p: Tensor) -> Tensor:
    return torch.linalg.vector_norm(p, dim=-1)  # its Hessian is singular, but not on the simplex


def chain(p: Tensor) -> Tensor:
    return 0.5 * (p * p).sum(-1) + 0.4 * (p[..., 1:] * p[..., :-1]).sum(-1)


def soft_worst(p: Tensor) -> Tensor:
    n = p.shape[-1]
    mix = torch.cos(torch.arange(3.0 * n, dtype=F64)).reshape(n, 3)
    return (p @ mix).logsumexp(-1) + 0.1 * (p * p).sum(-1)


KNOWN = {
    "gini": (gini, fy.Gini()),
    "shannon": (shannon, fy.Shannon()),
    "tsallis15": (tsallis15, fy.Tsallis(1.5)),
    "tsallis3": (tsallis3, fy.Tsallis(3.0)),
    "norm": (norm, fy.Norm(2.0)),
}
EVERY = {name: f for name, (f, _) in KNOWN.items()} | {
    "squared_norm": squared_norm,
    "chain": chain,
    "soft_worst": soft_worst,
}
known = pytest.mark.parametrize(("f", "ours"), KNOWN.values(), ids=KNOWN)
every = pytest.mark.parametrize("f", EVERY.values(), ids=EVERY)


def randn(*shape: int, rng, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=rng, dtype=F64)


def distributions(*shape: int, rng) -> Tensor:
    return fy.entmax15(randn(*shape, rng=rng))


def smooth_rows(omega, rng, n: int = 5) -> Tensor:
    """Scores around which the support does not change, with two or more entries in it."""
    x = randn(100, 1, n, rng=rng, scale=0.5)
    near = torch.cat([x + 0.02 * torch.eye(n), x - 0.02 * torch.eye(n), x], 1)
    inside = omega.predict(near) > 0
    stable = (inside == inside[:, -1:]).all(-1).all(-1) & (inside[:, -1].sum(-1) >= 2)
    assert stable.sum() >= 3, "no smooth rows: change the scale"
    return x[stable, 0][:3].requires_grad_()


# ---------------------------------------------------------------------- what an Ω brings


@known
@pytest.mark.parametrize("gamma", [0.3, 1.0, 5.0])
def test_agrees_with_ours(f, ours, gamma, rng):
    omega, ours = from_function(f, gamma=gamma), gamma * ours
    scores, target = randn(6, 7, rng=rng), distributions(6, 7, rng=rng)
    indices = torch.tensor([0, 6, 1, 5, 2, 4])
    constant = omega(F.one_hot(torch.tensor(0), 7).double())  # ours are 0 at the vertices

    def same(got: Tensor, expected: Tensor) -> None:
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)

    same(omega.predict(scores), ours.predict(scores))
    same(omega.conjugate(scores), ours.conjugate(scores) - constant)
    same(omega.loss(scores, indices), ours.loss(scores, indices))
    same(omega.loss(scores, target), ours.loss(scores, target))
    same(omega(target), ours(target) + constant)
    inner = scores.softmax(-1)
    same(omega.bregman(target, inner), ours.bregman(target, inner))


@pytest.mark.parametrize(
    ("f", "margin"),
    [
        (gini, 1.0),
        (tsallis15, 2.0),
        (tsallis3, 0.5),
        (norm, 1.0),
        (squared_norm, 1.0),
        (lambda p: (p * p.log()).sum(-1), INF),
        (lambda p: torch.xlogy(p, p).sum(-1), INF),
        (lambda p: -p.sqrt().sum(-1), INF),
    ],
)
def test_margin(f, margin):
    assert from_function(f).margin == pytest.approx(margin)
    assert from_function(f, gamma=3.0).margin == pytest.approx(3 * margin)
    if margin < INF:
        for gap, is_zero in ((1.001, True), (0.99, False)):
            scores = torch.tensor([0.0, gap * margin, 0.0], dtype=F64)
            assert bool(from_function(f).loss(scores, torch.tensor(1)) == 0) == is_zero


def test_margin_of_a_fixed_size_is_refused():
    matrix = torch.eye(5, dtype=F64)
    omega = from_function(lambda p: ((p @ matrix) * p).sum(-1))
    with pytest.raises(fy.FenchelError, match="two classes"):
        _ = omega.margin


@pytest.mark.parametrize(
    "f",
    [
        shannon,
        lambda p: (p * p.log()).sum(-1),
        lambda p: torch.xlogy(p, p).sum(-1),
        lambda p: -torch.special.entr(p).sum(-1),
    ],
    ids=["clamped", "plain", "xlogy", "entr"],
)
def test_infinite_slopes(f, rng):
    omega = from_function(f)
    scores = randn(5, 6, rng=rng, scale=10).requires_grad_()
    torch.testing.assert_close(omega.predict(scores), scores.softmax(-1), rtol=0, atol=1e-10)
    losses = omega.loss(scores, torch.tensor([0, 1, 2, 3, 4]))
    expected = F.cross_entropy(scores, torch.tensor([0, 1, 2, 3, 4]), reduction="none")
    torch.testing.assert_close(losses, expected, rtol=1e-9, atol=1e-9)
    (got,) = torch.autograd.grad(losses.sum(), scores, create_graph=True)
    (want,) = torch.autograd.grad(expected.sum(), scores, create_graph=True)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-10)
    (got,) = torch.autograd.grad((got**2).sum(), scores)
    (want,) = torch.autograd.grad((want**2).sum(), scores)
    torch.testing.assert_close(got, want, rtol=0, atol=1e-9)


@every
def test_loss_is_zero_exactly_at_the_prediction(f, rng):
    omega = from_function(f)
    scores = randn(8, 6, rng=rng)
    target = distributions(8, 6, rng=rng)
    assert (omega.loss(scores, target) > 0).all()
    assert (omega.loss(scores, omega.predict(scores)) <= 1e-14).all()
    assert (omega.loss(scores, omega.predict(scores)) >= 0).all()


@every
def test_gamma_is_a_temperature(f, rng):
    scores, target = randn(4, 6, rng=rng), distributions(4, 6, rng=rng)
    omega, scaled = from_function(f, gamma=0.25), 0.25 * from_function(f)
    assert torch.equal(omega.predict(scores), from_function(f).predict(4 * scores))
    assert torch.equal(omega.predict(scores), scaled.predict(scores))
    for method in ("conjugate", "loss"):
        arguments = (scores,) if method == "conjugate" else (scores, target)
        got, expected = (getattr(o, method)(*arguments) for o in (omega, scaled))
        torch.testing.assert_close(got, expected)
    solution = omega.solve(scores, dim=-1)
    free = from_function(f).solve(4 * scores)
    torch.testing.assert_close(solution.gap, 0.25 * free.gap, rtol=1e-12, atol=0)


# ---------------------------------------------------------------------- derivatives


def check_derivatives(function, *inputs: Tensor) -> None:
    assert gradcheck(function, inputs, check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(function, inputs, fast_mode=True)


@every
@pytest.mark.parametrize("strongly_convex", [True, False], ids=["regular", "least_norm"])
def test_derivatives_of_the_map(f, strongly_convex, rng):
    omega = from_function(f, strongly_convex=strongly_convex, gamma=0.8)
    check_derivatives(omega.predict, smooth_rows(omega, rng))


@every
def test_derivatives_of_loss_and_conjugate(f, rng):
    omega = from_function(f)
    scores, target = smooth_rows(omega, rng), distributions(3, 5, rng=rng)
    check_derivatives(omega.conjugate, scores)
    check_derivatives(lambda x: omega.loss(x, target), scores)


@every
def test_derivatives_of_omega(f, rng):
    omega = from_function(f)
    p = randn(3, 5, rng=rng).softmax(-1).requires_grad_()
    y = randn(3, 5, rng=rng).softmax(-1).requires_grad_()
    check_derivatives(omega, p)
    check_derivatives(omega.bregman, y, p)


def test_every_entry_of_a_second_derivative(rng):
    omega = from_function(chain)
    scores = smooth_rows(omega, rng)[:1].detach().requires_grad_()
    assert gradcheck(omega.predict, scores) and gradgradcheck(omega.predict, scores)


@pytest.mark.parametrize("strongly_convex", [True, False], ids=["regular", "least_norm"])
def test_torch_func(strongly_convex, rng):
    from torch.func import hessian, jacfwd, jacrev, vmap

    omega = from_function(tsallis15, strongly_convex=strongly_convex)
    scores = smooth_rows(omega, rng).detach()
    for transform in (
        lambda f: vmap(f),
        lambda f: vmap(jacrev(f)),
        lambda f: vmap(jacfwd(f)),
        lambda f: vmap(hessian(f)),
        lambda f: jacrev(jacrev(f)),
    ):
        got, expected = transform(omega.predict)(scores), transform(fy.entmax15)(scores)
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)
    target = torch.tensor(1)
    got = vmap(hessian(lambda x: omega.loss(x, target)))(scores)
    expected = vmap(hessian(lambda x: fy.Tsallis(1.5).loss(x, target)))(scores)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)
    with pytest.raises(fy.FenchelError, match="forward-over-forward"):
        jacfwd(jacfwd(omega.predict))(scores)


def flat(p: Tensor) -> Tensor:
    return 0.5 * (p[..., :2] ** 2).sum(-1)


def test_singular_hessians(rng):
    scores = torch.tensor([0.3, 0.1, 0.0, 0.0, -5.0], dtype=F64, requires_grad=True)
    with pytest.raises(fy.FenchelError, match="strongly_convex=False"):
        from_function(flat).predict(scores)[0].backward()
    omega = from_function(flat, strongly_convex=False)
    jacobian = torch.autograd.functional.jacobian(omega.predict, scores)
    # p0 and p1 follow their scores, the two flat entries share what is left, evenly.
    expected = torch.zeros(5, 5, dtype=F64)
    expected[:2, :2] = torch.eye(2)
    expected[2:4, :2], expected[:2, 2:4], expected[2:4, 2:4] = -0.5, -0.5, 0.5
    torch.testing.assert_close(jacobian, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("strongly_convex", [True, False], ids=["regular", "least_norm"])
def test_masks_and_bad_rows(strongly_convex, rng):
    omega = from_function(tsallis15, strongly_convex=strongly_convex)
    scores = randn(4, 6, rng=rng)
    scores[0, 2], scores[1], scores[2, 3] = -INF, -INF, math.nan
    scores.requires_grad_()
    upstream = randn(4, 6, rng=rng)
    p, truth = omega.predict(scores), fy.entmax15(scores)
    torch.testing.assert_close(p, truth, rtol=0, atol=1e-12, equal_nan=True)
    (got,) = torch.autograd.grad(p, scores, upstream)
    (expected,) = torch.autograd.grad(truth, scores, upstream)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10, equal_nan=True)
    assert got[0, 2] == 0 and (got[1] == 0).all() and got[2].isnan().all()
    mask = torch.rand(4, 6, generator=rng) < 0.7
    clean = randn(4, 6, rng=rng)
    masked = omega.predict(clean, mask=mask)
    assert torch.equal(masked, omega.predict(clean.masked_fill(~mask, -INF)))


def test_gradient_of_a_row_does_not_see_its_batch(rng):
    omega = from_function(tsallis15)
    scores = randn(30, 9, rng=rng) * torch.logspace(-1, 1, 30, dtype=F64).unsqueeze(-1)
    upstream = randn(30, 9, rng=rng)

    def gradient(rows: slice) -> Tensor:
        x = scores[rows].clone().requires_grad_()
        return torch.autograd.grad(omega.predict(x), x, upstream[rows])[0]

    together = gradient(slice(None))
    for i in range(0, 30, 4):
        assert torch.equal(gradient(slice(i, i + 1))[0], together[i])


# ---------------------------------------------------------------------- how it is called


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_lower_precision(dtype, rng):
    omega = from_function(chain)
    scores = randn(4, 6, rng=rng).to(dtype).requires_grad_()
    p = omega.predict(scores)
    assert p.dtype == dtype == omega.loss(scores, torch.tensor([0, 1, 2, 3])).dtype
    exact = omega.predict(scores.double())
    torch.testing.assert_close(p.double(), exact, rtol=0, atol=torch.finfo(dtype).eps)
    (grad,) = torch.autograd.grad(p[0, 0], scores)
    assert grad.dtype == dtype and grad.isfinite().all()
    assert omega.solve(scores).p.dtype == dtype


def test_dim_and_solve(rng):
    omega = from_function(tsallis15, gamma=2.0)
    scores = randn(3, 5, 4, rng=rng)
    moved = scores.movedim(1, -1)
    assert torch.equal(omega.predict(scores, dim=1).movedim(1, -1), omega.predict(moved))
    solution = omega.solve(scores, dim=1)
    assert torch.equal(solution.p, omega.predict(scores, dim=1))
    assert solution.gap.shape == solution.iterations.shape == solution.converged.shape == (3, 4)
    assert solution.converged.all() and solution.gap.max() < 1e-12
    early = from_function(tsallis15, gamma=2.0, max_iter=1).solve(scores, dim=1)
    missing = omega.conjugate(scores, dim=1) - ((scores * early.p).sum(1) - omega(early.p, dim=1))
    assert (missing <= early.gap + 1e-14).all() and (missing > 0).any()


def test_warns_when_it_stops_early(rng):
    scores = randn(3, 5, rng=rng)
    omega = from_function(tsallis15, max_iter=1, name="mine")
    remedy = r"mine.* 3 of 3 rows .* 1 iterations .*raise `max_iter` or `tol`, or rescale"
    with pytest.warns(UserWarning, match=remedy) as record:
        omega.predict(scores)
    assert record[0].filename == __file__
    with pytest.warns(UserWarning, match=remedy):
        omega.loss(scores, torch.tensor([0, 1, 2]))
    scores[0], scores[1], scores[2] = math.nan, -INF, INF
    omega.predict(scores)  # nothing to warn of: these rows were lost before
    from_function(tsallis15, max_iter=1, tol=10.0).predict(scores)


def test_losses_take_every_argument(rng):
    omega, ours = from_function(tsallis15), fy.Tsallis(1.5)
    scores = randn(8, 5, rng=rng)
    target = torch.tensor([0, 1, -1, 2, 3, 4, -1, 0])
    arguments = {
        "weight": torch.rand(5, generator=rng, dtype=F64),
        "label_smoothing": 0.1,
        "cost": 0.5,
        "ignore_index": -1,
    }
    for reduction in ("mean", "sum", "none"):
        got, expected = (
            fy.fenchel_young_loss(scores, target, o, reduction=reduction, **arguments)
            for o in (omega, ours)
        )
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


def test_functions_of_one_row(rng):
    scores = randn(5, 5, rng=rng).requires_grad_()
    one = from_function(lambda p: 0.5 * p @ p)
    p = one.predict(scores)
    torch.testing.assert_close(p, fy.sparsemax(scores), rtol=0, atol=1e-12)
    check_derivatives(one.predict, smooth_rows(one, rng))
    torch.testing.assert_close(one(p), gini(p))


def test_inference_mode_and_compile(rng):
    omega, scores = from_function(chain), randn(2, 5, rng=rng)
    expected = omega.predict(scores)
    with torch.inference_mode():
        assert torch.equal(omega.predict(scores * 1), expected)
        omega.loss(scores * 1, torch.tensor([0, 1]))
    compiled = torch.compile(lambda x: omega.predict(x * 1), backend="eager")
    assert torch.equal(compiled(scores), expected)


def test_repr():
    assert repr(from_function(gini)) == "Regularizer.from_function(gini, gamma=1)"
    assert repr(from_function(gini, gamma=0.5, name="mine")) == (
        "Regularizer.from_function(mine, gamma=0.5)"
    )
    assert repr(from_function(torch.nn.Identity())) == (
        "Regularizer.from_function(Identity, gamma=1)"
    )


def test_learns(rng):
    """A linear model with an Ω of our own finds the labels and leaves margins behind."""
    inputs, teacher = randn(60, 4, rng=rng), randn(4, 3, rng=rng)
    labels = (inputs @ teacher).argmax(-1)
    omega = from_function(chain)
    weight = torch.zeros(4, 3, dtype=F64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight], max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = fy.fenchel_young_loss(inputs @ weight, labels, omega)
        loss.backward()
        return loss

    before = float(closure().detach())
    optimizer.step(closure)
    assert float(closure().detach()) < 0.05 * before
    assert (omega.predict(inputs @ weight).argmax(-1) == labels).all()
    assert (omega.predict(inputs @ weight) == 0).any()


# ---------------------------------------------------------------------- wrong arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"f": "gini"}, "function of probabilities .* got str"),
        ({"gamma": 0}, "`gamma` must be a finite number above 0; got 0"),
        ({"gamma": INF}, "`gamma` must be a finite number above 0; got inf"),
        ({"gamma": math.nan}, "`gamma` must be at least 0"),
        ({"gamma": "warm"}, "`gamma` to be a number, but got str"),
        ({"tol": 0.0}, "`tol` must be a finite number above 0"),
        ({"tol": -1.0}, "`tol` must be at least 0"),
        ({"max_iter": 0}, "`max_iter` to be an int of at least 1, but got 0"),
        ({"max_iter": 1e3}, "`max_iter` to be an int of at least 1, but got 1000.0"),
        ({"strongly_convex": 1}, "`strongly_convex` to be True or False, but got 1"),
        ({"name": 3}, "`name` to be a string, but got int"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(fy.FenchelError, match=message):
        from_function(**({"f": gini} | arguments))


_LEARNED = torch.ones(3, dtype=F64, requires_grad=True)


@pytest.mark.parametrize(
    ("f", "message"),
    [
        (lambda p: 1 / 0, "raised ZeroDivisionError"),
        (lambda p: p @ torch.ones(3), "shape .2, 3., but it raised RuntimeError: .*dtype"),
        (lambda p: p, r"shape \(2,\) .* but got shape \(2, 3\)"),
        (lambda p: 1.0, "but got float"),
        (lambda p: p.float().sum(-1), "but got torch.float32"),
        (lambda p: p.detach().sum(-1), "no `grad_fn`"),
        (lambda p: p.log().sum(-1) * math.nan, r"finite inside the simplex, but got \[nan, nan\]"),
        (lambda p: (_LEARNED * p * p).sum(-1), "requires grad.*scores alone"),
    ],
)
def test_wrong_functions(f, message):
    omega = from_function(f, name="mine")
    for call in (
        lambda x: omega.predict(x),
        lambda x: omega.conjugate(x),
        lambda x: omega.loss(x, torch.tensor([0, 1])),
    ):
        with pytest.raises(fy.FenchelError, match=message) as caught:
            call(torch.zeros(2, 3))
        assert str(caught.value).startswith("Regularizer.from_function(mine, gamma=1)")


def test_learnable_functions_may_be_evaluated():
    omega = from_function(lambda p: (_LEARNED * p * p).sum(-1))
    assert omega(torch.ones(3, dtype=F64) / 3).requires_grad
    with torch.no_grad():
        p = omega.predict(torch.zeros(3, dtype=F64))
    torch.testing.assert_close(p, torch.full((3,), 1 / 3, dtype=F64))
