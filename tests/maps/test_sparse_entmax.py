"""The nonzeros of entmax: the dense answer without its zeros, in values and in gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import fenchel as fy
from fenchel.kernels import _table
from fenchel.kernels.native._backend import NATIVE
from tests.maps.cases import INF, randn, same_bits

F64 = torch.float64
NAN = math.nan

pytestmark = pytest.mark.usefixtures("backend")
alphas = pytest.mark.parametrize("alpha", [0.5, 1.0, 1.001, 1.25, 1.5, 2.0, 2.5, 10.0, 1e4, INF])
dtypes = pytest.mark.parametrize(
    "dtype",
    [F64, torch.float32, torch.float16, torch.bfloat16],
    ids=lambda d: str(d).removeprefix("torch."),
)


def some_rows(rng, n: int = 6, dtype=F64) -> torch.Tensor:
    """Rows with several nonzeros, a one-hot row, a tie and a masked entry."""
    x = randn(5, n, rng=rng, scale=0.5)
    x[1, 2] = 5.0
    x[2, :3] = x[2, 0]
    x[3, 1] = -INF
    return x.to(dtype)


# ----------------------------------------------------------------------------------------- values


# fmt: off
TABLE = [  # alpha, scores, indices, values, threshold
    (1.5, [-2.0, 0.0, 0.5],  [1, 2],    [0.3260, 0.6740],         -1.1419),
    (2.0, [-2.0, 0.0, 0.5],  [1, 2],    [0.25, 0.75],             -0.25),
    (1.0, [-2.0, 0.0, 0.5],  [0, 1, 2], [0.0486, 0.3592, 0.5922], -INF),
    (INF, [-2.0, 0.5, 0.5],  [1, 2],    [0.5, 0.5],               0.5),
    (1.5, [2.0, 0.0, 0.0],   [0],       [1.0],                    0.0),
    (2.0, [7.0],             [0],       [1.0],                    6.0),
    (2.0, [0.0, -INF, 0.0],  [0, 2],    [0.5, 0.5],               -0.5),
    (1.5, [-INF, -INF],      [],        [],                       INF),
    (1.0, [-INF, -INF],      [],        [],                       INF),
    (INF, [-INF, -INF],      [],        [],                       INF),
    (1.5, [NAN, 0.0, -INF],  [0, 1, 2], [NAN, NAN, NAN],          NAN),
    (1.0, [INF, 0.0, -INF],  [0, 1, 2], [NAN, NAN, NAN],          NAN),
    (INF, [INF, 0.0, -INF],  [0, 1, 2], [NAN, NAN, NAN],          NAN),
]
# fmt: on


@pytest.mark.parametrize(("alpha", "scores", "indices", "values", "threshold"), TABLE)
@pytest.mark.parametrize("as_tensor", [False, True], ids=["number", "tensor"])
def test_table(alpha, scores, indices, values, threshold, as_tensor):
    alpha = torch.tensor(alpha, dtype=F64) if as_tensor else alpha
    rows = fy.sparse_entmax(torch.tensor(scores, dtype=F64), alpha)
    assert rows.indices.tolist() == indices
    assert rows.values.tolist() == pytest.approx(values, abs=5e-5, nan_ok=True)
    assert rows.sizes.item() == len(indices)
    assert rows.threshold.item() == pytest.approx(threshold, abs=5e-5, nan_ok=True)
    assert rows.n == len(scores)


@alphas
@dtypes
@pytest.mark.parametrize("n", [1, 3, 17, 700])
def test_is_the_dense_map_without_its_zeros(alpha, dtype, n, rng):
    x = randn(4, 3, n, rng=rng, dtype=dtype)
    for parameter in (alpha, torch.full((3, 1), alpha, dtype=F64)):
        rows, p = fy.sparse_entmax(x, parameter), fy.entmax(x, parameter)
        assert same_bits(rows.to_dense(), p)
        assert rows.values.dtype == dtype and rows.indices.dtype == rows.sizes.dtype == torch.int64
        wide = fy.entmax(x.float() if dtype.itemsize == 2 else x, parameter)
        assert torch.equal(rows.sizes, (wide > 0).sum(-1))
        assert torch.equal(rows.indices, (wide > 0).nonzero()[:, -1])
        assert rows.offsets.tolist() == [0, *rows.sizes.flatten().cumsum(0).tolist()]


@alphas
def test_threshold_gives_the_probabilities_back(alpha, rng):
    x = randn(50, 9, rng=rng)
    rows, p = fy.sparse_entmax(x, alpha), fy.entmax(x, alpha)
    above = x - rows.threshold.unsqueeze(-1)
    if alpha <= 1:
        assert (rows.threshold == -INF).all()
    elif alpha == INF:
        assert torch.equal(rows.threshold, x.amax(-1))
    else:
        # Compared as p^(alpha-1): p itself is infinitely steep in the threshold for alpha > 2.
        expected = ((alpha - 1) * above).clamp(min=0)
        torch.testing.assert_close(p ** (alpha - 1), expected, rtol=0, atol=1e-14 * alpha)
        assert (above[p > 0] > -1e-15).all() and (above[p == 0] < 1e-15).all()


@dtypes
def test_threshold_has_the_dtype_of_the_computation(dtype):
    rows = fy.sparse_entmax(torch.tensor([0.0, 0.1], dtype=dtype))
    assert rows.threshold.dtype == (F64 if dtype == F64 else torch.float32)
    assert not rows.threshold.requires_grad


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("alpha", [1.5, 3.0])
def test_any_dim_in_row_major_order_of_the_others(dim, alpha, rng):
    x = randn(3, 4, 5, rng=rng)
    per_row = alpha + torch.rand(x.amax(dim, keepdim=True).shape, generator=rng, dtype=F64)
    for parameter in (alpha, per_row):
        rows = fy.sparse_entmax(x, parameter, dim)
        moved = x.movedim(dim, -1).contiguous()
        last = parameter.movedim(dim, -1) if isinstance(parameter, torch.Tensor) else parameter
        for a, b in zip(rows, fy.sparse_entmax(moved, last), strict=True):
            assert a == b if isinstance(a, int) else torch.equal(a, b)
        assert torch.equal(rows.to_dense(dim), fy.entmax(x, parameter, dim))
        assert rows.sizes.shape == rows.threshold.shape == moved.shape[:-1]


def test_alpha_changes_the_support():
    x = torch.tensor([0.0, 0.8, 1.0])
    assert [fy.sparse_entmax(x, a).sizes.item() for a in (1.0, 1.5, 2.0, INF)] == [3, 3, 2, 1]


def test_mask_is_minus_infinity(rng):
    x = randn(4, 6, rng=rng)
    mask = torch.rand(4, 6, generator=rng) > 0.4
    mask[0] = False
    rows = fy.sparse_entmax(x, mask=mask)
    assert torch.equal(rows.to_dense(), fy.entmax(x, mask=mask))
    assert rows.sizes[0] == 0 and rows.threshold[0] == INF
    assert not torch.equal(rows.to_dense(), fy.entmax(x))


@pytest.mark.parametrize("wrong", [0.0, -0.5, math.nan])
def test_no_alpha_in_a_tensor_makes_its_row_nan(wrong):
    x, alpha = torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([[wrong], [2.0]])
    rows = fy.sparse_entmax(x, alpha)
    assert rows.sizes.tolist() == [2, 1]
    assert rows.values.isnan().tolist() == [True, True, False]
    assert rows.threshold.isnan().tolist() == [True, False]


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3), (0, 1)], ids=str)
def test_empty_batch(shape):
    x = torch.zeros(shape, requires_grad=True)
    rows = fy.sparse_entmax(x)
    assert rows.values.shape == rows.indices.shape == (0,)
    assert rows.sizes.shape == rows.threshold.shape == shape[:-1]
    assert rows.offsets.tolist() == [0]
    rows.to_dense().sum().backward()
    assert rows.to_dense().shape == x.grad.shape == shape


def test_strides_do_not_matter(rng):
    x = randn(12, 10, rng=rng).t()[::2, 1::3]
    assert torch.equal(fy.sparse_entmax(x).to_dense(), fy.entmax(x.contiguous()))


def test_native_makes_no_dense_result(backend, monkeypatch, rng):
    if backend != "native":
        pytest.skip("the reference goes through the dense map")

    def refuse(*_):
        raise AssertionError("the dense kernel was called")

    monkeypatch.setitem(_table._kernels, "entmax", [(NATIVE, refuse)])
    x = randn(3, 100, rng=rng).requires_grad_()
    with pytest.raises(AssertionError, match="dense kernel"):
        fy.entmax(x)
    fy.sparse_entmax(x, 1.5).values.square().sum().backward()


@pytest.mark.parametrize("count", [1, 2])
def test_threads_do_not_change_the_order(count, threads, rng):
    x = randn(300, 500, rng=rng, dtype=torch.float32)
    expected = fy.entmax(x)
    threads(count)
    assert torch.equal(fy.sparse_entmax(x).to_dense(), expected)


# -------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize("alpha", [1.0, 1.01, 1.5, 2.0, 2.5, 4.0])
def test_gradcheck_of_first_and_second_order(alpha, rng):
    x = randn(3, 5, rng=rng, scale=0.3).requires_grad_()
    assert gradcheck(lambda x: fy.sparse_entmax(x, alpha).values, (x,))
    assert gradgradcheck(lambda x: fy.sparse_entmax(x, alpha).values, (x,))
    per_row = torch.full((3, 1), alpha + 0.003, dtype=F64, requires_grad=True)
    assert gradcheck(lambda x, a: fy.sparse_entmax(x, a).values, (x, per_row))
    assert gradgradcheck(lambda x, a: fy.sparse_entmax(x, a).values, (x, per_row))


@alphas
@pytest.mark.parametrize("dtype", [F64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("as_tensor", [False, True], ids=["number", "tensor"])
def test_gradients_equal_those_of_the_dense_map(alpha, dtype, as_tensor, rng):
    x = some_rows(rng, n=40, dtype=dtype)
    weight = randn(*x.shape, rng=rng, dtype=dtype)
    grads = []
    for function in (lambda x, a: fy.sparse_entmax(x, a).to_dense(), fy.entmax):
        leaf = x.clone().requires_grad_()
        a = torch.full((5, 1), alpha, dtype=F64, requires_grad=True) if as_tensor else alpha
        (function(leaf, a) * weight).sum().backward()
        grads.append((leaf.grad, a.grad if as_tensor else torch.zeros(1)))
    bound = 1e-10 if dtype == F64 else 3e-6
    for sparse, dense in zip(*grads, strict=True):
        scale = max(1.0, float(dense.abs().max()))
        torch.testing.assert_close(sparse, dense, rtol=0, atol=bound * scale)
    assert grads[0][0][3, 1] == 0  # the masked entry


def test_gradient_in_alpha_has_its_shape_and_dtype(rng):
    x = randn(2, 3, 5, rng=rng, scale=0.3)
    for shape in ((), (1,), (3, 1), (2, 1, 1), (2, 3, 1)):
        alpha = torch.full(shape, 1.7, requires_grad=True)
        other = alpha.detach().clone().requires_grad_()
        fy.sparse_entmax(x, alpha).values.square().sum().backward()
        fy.entmax(x, other).square().sum().backward()
        assert alpha.grad.shape == shape and alpha.grad.dtype == torch.float32
        torch.testing.assert_close(alpha.grad, other.grad)


def test_rows_without_support_and_nan_rows_in_the_backward():
    x = torch.tensor([[-INF, -INF], [NAN, 0.0], [0.2, 0.0]], requires_grad=True)
    for alpha in (1.5, 4.0, torch.full((3, 1), 1.5)):
        (grad,) = torch.autograd.grad(fy.sparse_entmax(x, alpha).values.square().sum(), x)
        assert (grad[0] == 0).all() and grad[1].isnan().all() and grad[2].isfinite().all()


def test_second_derivative_is_finite_at_infinite_alpha(rng):
    x = some_rows(rng).requires_grad_()
    alpha = torch.tensor([[INF], [50.0], [INF], [1.5], [1e4]], dtype=F64, requires_grad=True)
    loss = fy.sparse_entmax(x, alpha).values.square().sum()
    first = torch.autograd.grad(loss, (x, alpha), create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), (x, alpha))
    assert all(g.isfinite().all() for g in (*first, *second))
    assert (first[0][0] == 0).all() and first[1][0] == 0


# ------------------------------------------------------------------------------------ torch modes


def test_opcheck(rng):
    x = randn(3, 5, rng=rng, dtype=torch.float32).requires_grad_()
    alpha = torch.full((3, 1), 1.7, requires_grad=True)
    op = torch.ops.fenchel.sparse_entmax.default
    for arguments in ((x, None, 1.5), (x, alpha, 0.0)):
        results = torch.library.opcheck(op, arguments)
        assert set(results.values()) == {"SUCCESS"}


def test_compiles_into_one_graph(rng):
    x = randn(4, 9, rng=rng).requires_grad_()
    compiled = torch.compile(
        lambda x: fy.sparse_entmax(x, 1.5).to_dense() * 2, backend="aot_eager", fullgraph=True
    )
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        y = compiled(x)
        (grad,) = torch.autograd.grad(y.square().sum(), x)
    expected = 2 * fy.entmax(x, 1.5)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(grad, torch.autograd.grad(expected.square().sum(), x)[0])


# ----------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: fy.sparse_entmax(x, 0.0),
            "sparse_entmax: `alpha` must be above 0 (1 is softmax, 2 is sparsemax); got 0.0.",
        ),
        (
            lambda x: fy.sparse_entmax(x.int()),
            "sparse_entmax: expected `scores` of a floating dtype (float64, float32, float16 or "
            "bfloat16), but got torch.int32; convert "
            "with `scores.float()`.",
        ),
        (
            lambda x: fy.sparse_entmax(x).to_dense(2),
            "SparseRows.to_dense: expected `dim` to be an int in [-2, 1], but got 2.",
        ),
        *(
            (
                call,
                "sparse_entmax: expected no torch.func and no forward mode, because supports "
                "differ in size; give a batch as dimensions of `scores`, or use `fy.entmax`.",
            )
            for call in (
                lambda x: torch.func.vmap(lambda x: fy.sparse_entmax(x).values)(x),
                lambda x: torch.func.grad(lambda x: fy.sparse_entmax(x).values.sum())(x),
                lambda x: torch.func.jvp(lambda x: fy.sparse_entmax(x).values, (x,), (x,)),
            )
        ),
    ],
)
def test_errors(call, message):
    with pytest.raises(fy.FenchelError) as error:
        call(torch.zeros(2, 3))
    assert str(error.value) == message
