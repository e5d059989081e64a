"""Derivatives of every map in its scores and in its parameter, in every mode torch has."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.autograd.functional import hessian, jacobian

import fenchel as fy
from tests.maps.cases import ATOL, INF, MAPS, PER_ROW, every_map, every_smooth_case, randn
from tests.reference import mp_entmax_dalpha, mp_normmax_dalpha

pytestmark = pytest.mark.usefixtures("backend")

F64 = torch.float64
with_parameter = pytest.mark.parametrize(
    ("map_", "param"),
    [
        pytest.param(MAPS[name], value, id=f"{name}-{value:g}")
        for name in PER_ROW
        for value in MAPS[name].smooth
    ],
)


def smooth_rows(map_, param, rng, rows: int = 3, n: int = 5, gap: float = 0.03) -> Tensor:
    """Rows whose support and groups stay the same when any score moves by ``gap``.

    At least one of them has two levels strictly inside, so that no derivative is trivially zero.
    """
    found, steps = [], np.concatenate([np.eye(n), -np.eye(n)]) * gap
    for _ in range(2000):
        x = randn(n, rng=rng, scale=0.6).numpy()
        p = map_.reference(np.vstack([x, x + steps]), param)
        inside = (p > 0) & ((p < 1) if map_.capped else True)
        curved = len(np.unique(p[0][inside[0]])) >= 2 or found
        groups = p[:, :, None] == p[:, None, :]
        stable = (inside == inside[0]).all() and ((p == 0) == (p[0] == 0)).all()
        stable = stable and (groups == groups[0]).all()
        if curved and stable and p[0][inside[0]].min(initial=1) > 0.03:
            found.append(x)
        if len(found) == rows:
            return torch.tensor(np.array(found))
    raise AssertionError("no smooth points: change the scale")


ENTROPIES = {
    "sq_pnorm_max": lambda p, q: -((p**q).sum() ** (2 / q)) / 2,
    "renyimax": lambda p, beta: (p**beta).sum().log() / (1 - beta),
}


def jacobian_of_entropy(map_, p: Tensor, param) -> Tensor:
    """The Jacobian of one row from the Hessian of its entropy: the optimality conditions, moved."""
    inside, n = p > 0, int((p > 0).sum())
    conditions = torch.ones(n + 1, n + 1, dtype=p.dtype)
    conditions[:n, :n] = -hessian(lambda p: ENTROPIES[map_.name](p, param), p[inside])
    conditions[n, n] = 0
    out = torch.zeros(len(p), len(p), dtype=p.dtype)
    out[inside.nonzero(), inside.nonzero().T] = torch.linalg.inv(conditions)[:n, :n]
    return out


def jacobian_of_groups(p: Tensor) -> Tensor:
    """The Jacobian of one row whose entries move with their groups, less the mean of all."""
    inside = p > 0
    together = ((p[:, None] == p[None, :]) & inside[:, None] & inside[None, :]).to(p.dtype)
    means = together / together.sum(-1, keepdim=True).clamp(min=1)
    support = inside.to(p.dtype)
    return means - torch.outer(support, support) / support.sum()


def jacobian_of_reference(map_, x: Tensor, param) -> Tensor:
    """Differences of the float64 reference, of fourth order: to about 1e-11 inside a support."""
    steps = 1e-3 * np.eye(len(x))
    steps[np.isneginf(x.numpy())] = 0
    far, near = (
        (
            map_.reference(x.numpy() + h * steps, param)
            - map_.reference(x.numpy() - h * steps, param)
        )
        / (2e-3 * h)
        for h in (2, 1)
    )
    return torch.tensor((4 * near - far) / 3).T


def closed_jacobian(map_, x: Tensor, p: Tensor, param) -> Tensor:
    """The Jacobian of one row from its answer, by hand."""
    inside = p > 0
    if map_.name in ("fusedmax", "oscarmax"):
        return jacobian_of_groups(p)
    if map_.name in ENTROPIES and param != 1:
        return jacobian_of_entropy(map_, p, param)
    if map_.name == "normmax":  # p = v / Σv with v = p / ‖p‖, Σ v^α = 1
        v = p / (p**param).sum() ** (1 / param)
        s = torch.where(inside, v ** (2 - param), 0.0)
        away = torch.eye(len(p), dtype=p.dtype) - p.expand(len(p), -1)  # I − 1pᵀ
        return away.T @ torch.diag(s) @ away / ((param - 1) * v.sum())
    alpha = {"softmax": 1.0, "sparsemax": 2.0, "entmax15": 1.5, "budget": 2.0}.get(map_.name, param)
    if map_.declared.family.op not in ("entmax", "budget"):
        return jacobian_of_reference(map_, x, param)
    if map_.name == "budget":
        inside = inside & (p < 1)
    s = torch.where(inside, p ** (2 - alpha), 0.0)
    return torch.diag(s) - torch.outer(s, s) / s.sum().clamp(min=1e-300)


def entrywise(f, alpha: float, dtype=F64) -> Tensor:
    """df_i/dalpha for every entry, by reverse mode."""
    return jacobian(f, torch.tensor(alpha, dtype=dtype))


# ---------------------------------------------------------------------------------------- scores


@every_smooth_case
def test_gradcheck(map_, param, rng):
    x = smooth_rows(map_, param, rng).requires_grad_()
    assert gradcheck(lambda x: map_(x, param), (x,), check_forward_ad=True)
    assert gradcheck(lambda x: map_(x, param, dim=0), (x.detach().t().requires_grad_(),))


@every_smooth_case
def test_batched_gradients(map_, param, rng):
    """``is_grads_batched`` runs the backward under vmap, though the forward was not."""
    x = smooth_rows(map_, param, rng)[0]
    rows = jacobian(lambda x: map_(x, param), x)
    together = jacobian(lambda x: map_(x, param), x, vectorize=True)
    torch.testing.assert_close(together, rows, rtol=0, atol=1e-10)
    if map_.per_row:
        leaf = torch.tensor(param, dtype=F64, requires_grad=True)
        p = map_(x, leaf)
        (slopes,) = torch.autograd.grad(p, leaf, torch.eye(5, dtype=F64), is_grads_batched=True)
        torch.testing.assert_close(slopes, entrywise(lambda a: map_(x, a), param))


@every_smooth_case
def test_gradgradcheck(map_, param, rng):
    x = smooth_rows(map_, param, rng).requires_grad_()
    assert gradgradcheck(lambda x: map_(x, param), (x,))


@every_smooth_case
@pytest.mark.parametrize("masked", [False, True], ids=["full", "masked"])
def test_jacobian_is_the_closed_form(map_, param, masked, rng):
    for x in smooth_rows(map_, param, rng):
        if masked:
            x = torch.cat([x, torch.tensor([-INF], dtype=F64)])
        p = torch.tensor(map_.reference(x.numpy(), param))
        expected = closed_jacobian(map_, x, p, map_.params[0] if param is None else param)
        for got in (
            jacobian(lambda x: map_(x, param), x),
            torch.func.jacrev(lambda x: map_(x, param))(x),
            torch.func.jacfwd(lambda x: map_(x, param))(x),
        ):
            bound = 1e-9 * max(1.0, float(expected.abs().max()))
            torch.testing.assert_close(got, expected, rtol=0, atol=bound)
            if masked:
                assert (got[-1] == 0).all() and (got[:, -1] == 0).all()


@every_smooth_case
@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=["float32", "float64"])
def test_jacobian_at_scale_1e9_is_zero(map_, param, dtype):
    x = torch.tensor([3e9, -1e9, 0.0, -INF, 1e9], dtype=dtype)
    got = jacobian(lambda x: map_(x, param), x)
    if param is not None and param < map_.heavy_below:  # what is left of p at that distance
        got = torch.where(got.abs() < 2e-8, 0.0, got)
    assert (got == 0).all()


@every_smooth_case
@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=["float32", "float64"])
@pytest.mark.parametrize("n", [5, 50, 1000])
def test_backward_equals_the_reference(map_, param, dtype, n, rng, backend):
    x, w = randn(7, n, rng=rng, dtype=dtype), randn(7, n, rng=rng, dtype=dtype)
    x[0] = smooth_rows(map_, param, rng, rows=1, n=5)[0].repeat(n // 5).sort().values
    x[2, :3] = -INF
    grads = []
    for name in (backend, "reference"):
        leaf = x.clone().requires_grad_()
        with fy.use_backend(name):
            grads.append(torch.autograd.grad(map_(leaf, param), leaf, w)[0])
    # A probability near 0 is p^(2−α) in the gradient: above 2 its rounding is magnified.
    steep = map_.parameter in ("alpha", "q") and (param or 1) > 2
    bound = (1e-3 if dtype == torch.float32 else 1e-9) if steep else ATOL[dtype] * 10
    scale = grads[1].abs().amax(-1, keepdim=True).clamp(min=1)
    assert ((grads[0] - grads[1]).abs() <= bound * scale).all()


@every_map
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
def test_half_gradients_are_float32_rounded(map_, dtype, rng):
    x, w = randn(6, 40, rng=rng, dtype=dtype), randn(6, 40, rng=rng, dtype=dtype)
    low, high = x.clone().requires_grad_(), x.float().requires_grad_()
    (g_low,) = torch.autograd.grad(map_(low), low, w)
    (g_high,) = torch.autograd.grad(map_(high), high, w.float())
    assert g_low.dtype == dtype
    # The backward sees p rounded to half: a few units in its last place.
    torch.testing.assert_close(g_low.float(), g_high, rtol=0, atol=8 * torch.finfo(dtype).eps)


@every_smooth_case
def test_gradients_sum_to_zero(map_, param, rng):
    """f(x + c) = f(x), differentiated."""
    x, w = randn(8, 33, rng=rng).requires_grad_(), randn(8, 33, rng=rng)
    (g,) = torch.autograd.grad(map_(x, param), x, w)
    assert (g.sum(-1).abs() <= 1e-10 * g.abs().sum(-1).clamp(min=1)).all()


# ------------------------------------------------------------------------------------- parameter


@with_parameter
def test_gradcheck_in_the_parameter(map_, param, rng):
    x = smooth_rows(map_, param, rng).requires_grad_()
    per_row = torch.full((3, 1), param, dtype=F64, requires_grad=True)
    assert gradcheck(map_, (x, per_row), check_forward_ad=True)
    shared = torch.tensor(param, dtype=F64, requires_grad=True)
    assert gradcheck(map_, (x, shared), check_forward_ad=True)
    assert gradcheck(lambda a: map_(x.detach(), a), (shared,))


@with_parameter
def test_gradgradcheck_in_the_parameter(map_, param, rng):
    x = smooth_rows(map_, param, rng).requires_grad_()
    per_row = torch.full((3, 1), param, dtype=F64, requires_grad=True)
    assert gradgradcheck(map_, (x, per_row))


@pytest.mark.parametrize(
    "alpha", [1.0, 1 + 1e-10, 1 + 1e-6, 1.001, 1.01, 1.33, 1.5, 2.0, 3.0, 50.0]
)
@pytest.mark.parametrize("dtype", [torch.float32, F64], ids=["float32", "float64"])
def test_entmax_slope_in_alpha_against_fifty_digits(alpha, dtype):
    shape = torch.tensor([0.3, -0.2, 0.0, 0.25, -0.5, 0.1, -8.0])
    for scale in (1.0, 3.0):
        x = (shape * scale / max(1.0, alpha - 1)).to(dtype)
        rounded = float(torch.tensor(alpha, dtype=dtype))
        expected = torch.tensor(mp_entmax_dalpha(x.double().tolist(), rounded))
        got = entrywise(lambda a, x=x: fy.entmax(x, a), rounded, dtype).double()
        bound = (1e-8 if dtype == F64 else 2e-5) * max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(got, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("n", [2, 9, 1000])
def test_entmax_slope_at_one_is_the_closed_form(n, rng):
    x = randn(n, rng=rng, scale=2.0)
    x[-1] = -INF  # 0 · log² 0 = 0
    p = torch.softmax(x, -1)
    square = torch.where(p > 0, p.log() ** 2, 0.0)
    expected = -0.5 * p * (square - (p * square).sum())
    got = entrywise(lambda a: fy.entmax(x, a), 1.0)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-11)
    assert got[-1] == 0


@pytest.mark.parametrize("alpha", [1.01, 1.25, 1.5, 2.0, 3.0, 10.0])
def test_normmax_slope_in_alpha_against_fifty_digits(alpha):
    x = torch.tensor([0.03, -0.02, 0.0, 0.25, 0.2, -8.0], dtype=F64)
    x = x * (alpha - 1) if alpha < 1.2 else x
    expected = torch.tensor(mp_normmax_dalpha(x.tolist(), alpha))
    got = entrywise(lambda a: fy.normmax(x, a), alpha)
    bound = 1e-8 * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(got, expected, rtol=0, atol=bound)


def test_budget_slope_in_k_is_shared_by_the_active():
    x = torch.tensor([2.0, 0.5, 0.3, -3.0], dtype=F64)
    assert entrywise(lambda k: fy.budget(x, k), 2.0).tolist() == [0, 0.5, 0.5, 0]
    none_active = torch.tensor([9.0, 5.0, -5.0], dtype=F64)
    assert entrywise(lambda k: fy.budget(none_active, k), 2.0).tolist() == [0, 0, 0]
    all_ones = torch.tensor([9.0, 5.0, -INF], dtype=F64)
    assert entrywise(lambda k: fy.budget(all_ones, k), 2.5).tolist() == [0, 0, 0]


@with_parameter
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1), (2, 1, 1), (3, 1), (2, 3, 1)], ids=str)
def test_parameter_gradient_has_the_parameter_shape(map_, param, shape, rng):
    x = smooth_rows(map_, param, rng, rows=6).view(2, 3, 5)
    w = randn(2, 3, 5, rng=rng)
    full = torch.full((2, 3, 1), param, dtype=F64, requires_grad=True)
    (per_row,) = torch.autograd.grad(map_(x, full), full, w)
    small = torch.full(shape, param, dtype=F64, requires_grad=True)
    (got,) = torch.autograd.grad(map_(x, small), small, w)
    assert got.shape == shape
    torch.testing.assert_close(got, per_row.sum_to_size(shape) if shape else per_row.sum())


@pytest.mark.parametrize("name", PER_ROW)
def test_masked_rows_leave_the_parameter_alone(name, rng):
    x = randn(3, 5, rng=rng)
    x[1] = -INF
    param = torch.full((3, 1), 1.7, dtype=F64, requires_grad=True)
    (g,) = torch.autograd.grad(MAPS[name](x, param), param, randn(3, 5, rng=rng))
    assert g[1] == 0 and g.isfinite().all()


# ----------------------------------------------------------------------------------- temperature


@every_map
@pytest.mark.parametrize("gamma", [0.2, 3.0])
def test_gamma_is_a_temperature(map_, gamma, rng):
    x = randn(5, 7, rng=rng)
    expected = map_(x / gamma)
    torch.testing.assert_close(map_(x, gamma=gamma), expected)
    per_row = torch.full((5, 1), gamma, dtype=F64)
    torch.testing.assert_close(map_(x, gamma=per_row), expected)
    turned = map_(x.t().contiguous(), gamma=per_row.t(), dim=0)
    torch.testing.assert_close(turned, expected.t())
    # A quotient of large scores is rounded at their size; one of their differences is not.
    torch.testing.assert_close(map_(x + 1e12, gamma=gamma), map_((x + 1e12 - 1e12) / gamma))


@every_map
def test_gradcheck_in_gamma(map_, rng):
    x = smooth_rows(map_, None, rng).requires_grad_()
    gamma = torch.tensor([[1.0], [1.01], [0.99]], dtype=F64, requires_grad=True)
    assert gradcheck(lambda x, gamma: map_(x, gamma=gamma), (x, gamma), check_forward_ad=True)
    assert gradgradcheck(lambda x, gamma: map_(x, gamma=gamma), (x, gamma))


# ------------------------------------------------------------------------------------ torch.func


@every_smooth_case
def test_func_transforms(map_, param, rng):
    x, v, w = smooth_rows(map_, param, rng), randn(3, 5, rng=rng), randn(3, 5, rng=rng)

    def f(x):
        return map_(x, param)

    def objective(x):
        return (w[0] * f(x) ** 2).sum()

    close = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(torch.func.vmap(f)(x), f(x), **close)
    torch.testing.assert_close(torch.func.vmap(f, in_dims=1)(x.t()), f(x), **close)
    torch.testing.assert_close(torch.func.vmap(torch.func.vmap(f))(x[None]), f(x)[None], **close)
    p, tangent = torch.func.jvp(f, (x,), (v,))
    torch.testing.assert_close(p, f(x), **close)
    rows = torch.stack([jacobian(f, row) @ d for row, d in zip(x, v, strict=True)])
    torch.testing.assert_close(tangent, rows, rtol=1e-9, atol=1e-9)
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(f(forward_ad.make_dual(x, v)))
    torch.testing.assert_close(dual.tangent, rows, rtol=1e-9, atol=1e-9)
    each = torch.func.vmap(torch.func.grad(objective))(x)
    alone = torch.stack([torch.func.grad(objective)(row) for row in x])
    torch.testing.assert_close(each, alone, **close)
    second = hessian(objective, x[0])
    assert second.abs().max() > 1e-3  # a constant residual would make it silently zero
    for got in (
        torch.func.hessian(objective)(x[0]),
        torch.func.jacrev(torch.func.jacrev(objective))(x[0]),
    ):
        torch.testing.assert_close(got, second, rtol=1e-8, atol=1e-8)


@with_parameter
def test_func_transforms_of_the_parameter(map_, param, rng):
    x, params = smooth_rows(map_, param, rng), torch.full((3,), param, dtype=F64)
    p = map_(x, params[:, None])
    torch.testing.assert_close(torch.func.vmap(map_)(x, params), p, rtol=0, atol=1e-10)
    slopes = torch.stack([entrywise(lambda a, row=row: map_(row, a), param) for row in x])
    for mode in (torch.func.jacrev, torch.func.jacfwd):
        got = torch.func.vmap(mode(map_, argnums=1))(x, params)
        torch.testing.assert_close(got, slopes, rtol=1e-9, atol=1e-9)
    _, tangent = torch.func.jvp(
        lambda a: map_(x, a[:, None]), (params,), (torch.ones_like(params),)
    )
    torch.testing.assert_close(tangent, slopes, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("alpha", [1.0, 2.0, 50.0, 300.0, 1000.0, INF])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_second_derivative_in_alpha_is_finite(alpha, dtype):
    x = torch.tensor([0.3, 0.1, -0.2], dtype=dtype, requires_grad=True)
    parameter = torch.tensor(alpha, dtype=dtype, requires_grad=True)
    first = torch.autograd.grad(
        fy.entmax(x, parameter).pow(2).sum(), (x, parameter), create_graph=True
    )
    second = torch.autograd.grad(first[0].sum() + first[1], (x, parameter))
    assert all(g.isfinite().all() for g in (*first, *second))


def test_lazy_tensors_are_read_as_what_they_mean(backend):
    x = torch.tensor([1.0, 0.5, -1.0])
    assert torch.equal(fy.softmax(torch._neg_view(x)), fy.softmax(-x))
    assert torch.equal(fy.softmax(torch._efficientzerotensor(4)), torch.full((4,), 0.25))


def test_forward_over_forward_is_refused():
    x = torch.tensor([1.0, 0.5, -1.0])
    with pytest.raises(fy.FenchelError, match=r"jacfwd\(torch.func.jacrev"):
        torch.func.jacfwd(torch.func.jacfwd(fy.entmax15))(x)


@every_map
def test_cpu_autocast_keeps_the_dtype_as_softmax_does(map_):
    x = torch.randn(3, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for dtype in (torch.float32, torch.bfloat16):
            assert map_(x.to(dtype)).dtype == torch.softmax(x.to(dtype), -1).dtype


@every_map
def test_gradient_stays_in_the_graph(map_):
    x = torch.tensor([1.0, 0.5, -1.0], requires_grad=True)
    (grad,) = torch.autograd.grad(map_(x)[0], x, create_graph=True)
    assert grad.requires_grad


def test_checkpointing(rng):
    x = torch.randn(4, 6, generator=rng, requires_grad=True)
    run = torch.utils.checkpoint.checkpoint
    (grad,) = torch.autograd.grad(run(fy.entmax15, x, use_reentrant=False)[:, 0].sum(), x)
    (expected,) = torch.autograd.grad(fy.entmax15(x)[:, 0].sum(), x)
    assert torch.equal(grad, expected)
