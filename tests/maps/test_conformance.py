"""Every map against its reference, and what test_contract.py does not ask, on both backends."""

from __future__ import annotations

import math

import pytest
import torch

from tests.maps.cases import (
    ATOL,
    CASES,
    INF,
    MAPS,
    PER_ROW,
    assert_matches_reference,
    every_case,
    every_dtype,
    every_map,
    randn,
    same_bits,
)
from tests.reference import REFERENCE

pytestmark = pytest.mark.usefixtures("backend")

SHAPES = [(1,), (5,), (3, 1), (4, 7), (2, 3, 129), (5, 1000), (3, 4099)]
LENGTHS = [2, 5, 8, 33, 129, 1000]  # short rows have a path of their own in the native core
wide = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
#: The default at every length, other parameters on a short row and on a long one.
every_case_at_some_lengths = pytest.mark.parametrize(
    ("map_", "param", "n"),
    [
        pytest.param(*case.values, n, id=f"{case.id}-{n}")
        for case in CASES
        for n in (LENGTHS if case.values[1] == case.values[0].params[0] else (8, 129))
    ],
)


def gradient(map_, x, param, weights, **kwargs):
    """p, and the gradient of ⟨weights, p⟩ in the scores."""
    x = x.detach().clone().requires_grad_()
    p = map_(x, param, **kwargs)
    (g,) = torch.autograd.grad(p, x, weights)
    return p.detach(), g


def test_every_map_has_a_reference():
    assert REFERENCE.keys() == MAPS.keys()


# --------------------------------------------------------------------------------------- values


@every_case
@every_dtype
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_matches_float64_reference(map_, param, shape, dtype, rng, backend):
    if map_.declared.lengths and backend == "reference":  # which merges two groups at a time
        shape = (*shape[:-1], min(shape[-1], 300))
    for scale in (0.1, 1.0, 5.0):
        x = randn(*shape, rng=rng, dtype=dtype, scale=scale)
        p = map_(x, param)
        assert_matches_reference(map_, x, p, param)
        assert (p >= 0).all()
        if dtype in (torch.float32, torch.float64):
            total, n = map_.total(shape[-1], param), shape[-1]
            off = (p.double().sum(-1) - total).abs().max()
            assert off <= ATOL[dtype] * math.log2(n + 1) * max(total, 1)


@every_case
@pytest.mark.parametrize("c", [1e2, 1e4, 1e6, -1e6])
def test_shift_in_float32(map_, param, c, rng):
    # Stricter than the 1e-5 asked: the truth is taken at the rounded input, so nothing is lost.
    x = randn(6, 33, rng=rng, dtype=torch.float32) + c
    assert_matches_reference(map_, x, map_(x, param), param)
    grid = (randn(6, 33, rng=rng) * 8).round().float() / 8  # exact after the shift as well
    assert same_bits(map_(grid + c, param), map_(grid, param))


@every_case
@wide
@pytest.mark.parametrize("n", [8, 33, 129, 1000])
def test_one_large_entry_among_many_small(map_, param, dtype, n):
    """The worst case for a running sum: small terms that are added to 1 one after another."""
    n = min(n, 129) if map_.declared.lengths else n  # whose truth is found row by row in Python
    height = torch.linspace(0, 12, 65, dtype=dtype).repeat(3)
    x = torch.zeros(len(height), n, dtype=dtype)
    x[torch.arange(len(x)), torch.tensor([0, n // 2, n - 1]).repeat_interleave(65)] = height
    assert_matches_reference(map_, x, map_(x, param), param)


@wide
@pytest.mark.parametrize("n", [33, 257])
@pytest.mark.parametrize("name", ["entmax", "normmax", "sq_pnorm_max"])
def test_many_small_entries_just_inside_the_support(name, n, dtype):
    """Below the margin of a one-hot answer many tied entries enter at once, with little mass."""
    for alpha in (1.1, 1.25, 1.35, 1.38, 1.41, 1.44, 1.47, 1.53, 1.59, 1.75, 1.9, 2.5):
        margin = 1 / (alpha - 1) if name == "entmax" else 1.0
        x = torch.zeros(200, n, dtype=dtype)
        x[:, 0] = torch.linspace(0.8, 1, 200, dtype=dtype) * margin
        assert_matches_reference(MAPS[name], x, MAPS[name](x, alpha), alpha)


@every_case
@wide
def test_ties_and_equal_scores_match_the_reference(map_, param, dtype, rng):
    for n in (1, *LENGTHS[:-1]):
        x = torch.randint(-3, 4, (5, n), generator=rng).to(dtype) / 3
        assert_matches_reference(map_, x, map_(x, param), param)
        p = map_(torch.full((2, n), 0.3, dtype=dtype), param)
        assert p.unique().numel() == 1
        if map_.total(n, param) == n:
            assert (p == 1).all()


# --------------------------------------------------------------------------------------- layout


def layouts(x):
    """The same (rows, n) numbers in memory laid out in other ways."""
    rows, n = x.shape
    padded = torch.full((rows, 3 * n + 2), float("nan"), dtype=x.dtype)
    padded[:, 1 : 1 + n] = x
    spread = torch.full((2 * rows, 3 * n), float("nan"), dtype=x.dtype)
    spread[::2, ::3] = x
    cube = torch.full((rows, n, 2), float("nan"), dtype=x.dtype)
    cube[..., 1] = x
    return {
        "transposed": x.t().contiguous().t(),
        "unaligned slice": padded[:, 1 : 1 + n],
        "steps": spread[::2, ::3],
        "inner axis": cube[..., 1],
    }


@every_case_at_some_lengths
@wide
def test_strides_do_not_matter(map_, param, n, dtype, rng):
    x, w = randn(6, n, rng=rng, dtype=dtype), randn(6, n, rng=rng, dtype=dtype)
    p, g = gradient(map_, x, param, w)
    for name, view in layouts(x).items():
        assert not view.is_contiguous() or n == 1 or name == "transposed"
        assert same_bits(map_(view, param), p), name
        leaf = view.detach().requires_grad_()
        (got,) = torch.autograd.grad(map_(leaf, param), leaf, w.t().contiguous().t())
        bound = ATOL[dtype] * 10 * max(1.0, float(g.abs().max()))
        torch.testing.assert_close(got, g, rtol=0, atol=bound, msg=name)
    expanded = x[:1].expand(6, n)
    assert same_bits(map_(expanded, param), p[:1].expand(6, n))
    deep = x[:, None, :].expand(6, 4, n).transpose(0, 1)
    assert same_bits(map_(deep, param), p.expand(4, 6, n))


@every_case_at_some_lengths
@wide
def test_equal_rows_give_equal_bits(map_, param, n, dtype, rng, threads):
    rows = randn(3, n, rng=rng, dtype=dtype, scale=2.0)
    expected = torch.stack([map_(row, param) for row in rows])  # each alone
    enough = max(32, 17_000 // n)  # for several threads to share the batch
    for count, batches in ((1, (3, 4, 7, 8, 9, 31, enough)), (2, (enough,))):
        threads(count)
        for batch in batches:
            which = torch.randint(3, (batch,), generator=rng)  # the rows at other positions
            assert same_bits(map_(rows[which], param), expected[which]), (count, batch)
    with_grad = map_(rows.clone().requires_grad_(), param)
    assert same_bits(with_grad.detach(), expected)


@every_case
@every_dtype
def test_empty_batch(map_, param, dtype):
    for shape in ((0, 5), (2, 0, 3), (0, 1)):
        x = torch.empty(shape, dtype=dtype, requires_grad=True)
        p = map_(x, param)
        assert p.shape == shape and p.dtype == dtype
        p.sum().backward()
        assert x.grad is not None and x.grad.shape == shape


@every_case
@every_dtype
def test_numbers_and_rows_without_entries(map_, param, dtype):
    """As torch.softmax takes them."""
    x = torch.tensor(3.7, dtype=dtype, requires_grad=True)
    of_one = 1.0 if map_.capped else param
    for kwargs in ({}, {"dim": 0}, {"dim": -1}, {"mask": torch.tensor(True)}):
        p = map_(x, of_one, **kwargs)
        assert p.shape == () and p.dtype == dtype and float(p.detach()) == 1
        (g,) = torch.autograd.grad(p, x)
        assert float(g) == 0
    assert float(map_(x.detach(), of_one, mask=torch.tensor(False))) == 0
    for shape, dim in (((2, 0), -1), ((0,), 0), ((0, 3), 0)):
        x = torch.empty(shape, dtype=dtype, requires_grad=True)
        p = map_(x, 0 if map_.capped else param, dim=dim)
        assert p.shape == shape and p.dtype == dtype
        p.sum().backward()
        assert x.grad is not None and x.grad.shape == shape


@every_case
@every_dtype
def test_single_entry(map_, param, dtype):
    x = torch.tensor([[3.7], [-1e4], [0.0]], dtype=dtype)
    expected = torch.full((3, 1), map_.total(1, param), dtype=dtype)
    p, g = gradient(map_, x, param, torch.ones_like(x))
    assert torch.equal(p, expected)
    assert torch.equal(g, torch.zeros_like(g))


# ---------------------------------------------------------------------------------------- masks


@every_case
@wide
@pytest.mark.parametrize("n", [5, 33, 1000])
def test_masked_entries_are_absent(map_, param, dtype, n, rng):
    x = randn(6, n, rng=rng, dtype=dtype)
    keep = torch.rand(6, n, generator=rng) < 0.6
    keep[:, 0] = True
    w = randn(6, n, rng=rng, dtype=dtype)
    p, g = gradient(map_, x.masked_fill(~keep, -INF), param, w)
    assert (p[~keep] == 0).all() and (g[~keep] == 0).all()
    assert g.isfinite().all()
    assert_matches_reference(map_, x.masked_fill(~keep, -INF), p, param)
    for i in range(6):
        alone, alone_g = gradient(map_, x[i][keep[i]], param, w[i][keep[i]])
        assert_matches_reference(map_, x[i][keep[i]], alone, param)
        if not map_.symmetric:  # where a gap is, there are no neighbours
            continue
        if map_.capped or (param or 1) <= 2:  # p^(2−α) magnifies roundings beyond
            bound = ATOL[dtype] * 100 * max(1.0, float(alone_g.abs().max()))
            torch.testing.assert_close(g[i][keep[i]], alone_g, rtol=0, atol=bound)
    masked, masked_g = gradient(map_, x, param, w, mask=keep)
    assert same_bits(masked, p)
    assert same_bits(masked_g, g)


@every_map
def test_mask_broadcasts_and_follows_dim(map_, rng):
    x = randn(4, 3, 6, rng=rng)
    keep = torch.tensor([True, True, False, True, False, True])
    expected = map_(x.masked_fill(~keep, -INF))
    assert same_bits(map_(x, mask=keep), expected)
    per_batch = torch.rand(4, 1, 6, generator=rng) < 0.7
    assert same_bits(map_(x, mask=per_batch), map_(x.masked_fill(~per_batch, -INF)))
    along = torch.tensor([True, False, True])[:, None]
    assert same_bits(map_(x, dim=1, mask=along), map_(x.masked_fill(~along, -INF), dim=1))
    assert same_bits(map_(x, mask=torch.ones(6, dtype=torch.bool)), map_(x))


@every_case
@every_dtype
@pytest.mark.parametrize("n", [1, 4, 1000])
def test_fully_masked_row_is_zero_and_has_no_gradient(map_, param, dtype, n, rng):
    x = randn(3, n, rng=rng, dtype=dtype)
    rest = map_(x, param)[[0, 2]]
    for scores, kwargs in (
        (x.index_fill(0, torch.tensor([1]), -INF), {}),
        (x, {"mask": torch.tensor([True, False, True])[:, None]}),
    ):
        p, g = gradient(map_, scores, param, torch.ones_like(x).cumsum(-1), **kwargs)
        assert (p[1] == 0).all() and (g[1] == 0).all()
        assert same_bits(p[[0, 2]], rest)
        assert g.isfinite().all()
    everything = torch.full((2, n), -INF, dtype=dtype)
    p, g = gradient(map_, everything, param, torch.ones_like(everything))
    assert (p == 0).all() and (g == 0).all()


def test_budget_with_fewer_entries_than_k_gives_each_one():
    x = torch.tensor([[0.3, -INF, -2.0, -INF], [1.0, 5.0, -INF, 2.0], [-INF] * 4])
    p, g = gradient(MAPS["budget"], x, 2.5, torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(3, 4))
    assert p[0].tolist() == [1, 0, 1, 0]
    assert p[1].tolist() == pytest.approx([0.5, 1, 0, 1])
    assert p[2].tolist() == [0, 0, 0, 0]
    assert g[[0, 2]].abs().max() == 0


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bad", [math.nan, INF])
def test_bad_values_spoil_their_row_only(map_, param, dtype, bad, rng):
    """In half precision; the contract says it of the others."""
    for n in (1, 2, 7, 50, 1000):
        x, w = randn(5, n, rng=rng, dtype=dtype), randn(5, n, rng=rng, dtype=dtype)
        clean, clean_g = gradient(map_, x, param, w)
        x[1, n // 2] = bad
        x[3] = -INF
        x[3, 0] = bad  # beside masked entries too
        p, g = gradient(map_, x, param, w)
        assert p[[1, 3]].isnan().all()
        assert same_bits(p[[0, 2, 4]], clean[[0, 2, 4]])
        assert same_bits(g[[0, 2, 4]], clean_g[[0, 2, 4]])


# ----------------------------------------------------------------------------- parameter per row


@pytest.mark.parametrize("name", PER_ROW)
@every_dtype
@pytest.mark.parametrize("n", [3, 33, 1000])
def test_parameter_per_row_equals_the_rows_alone(name, dtype, n, rng):
    map_ = MAPS[name]
    params = torch.tensor(map_.params, dtype=dtype if dtype == torch.float64 else torch.float32)
    x = randn(3, len(map_.params), n, rng=rng, dtype=dtype)
    p = map_(x, params[:, None])
    assert_matches_reference(map_, x, p, params[:, None])
    over_middle = map_(x.transpose(1, 2).contiguous(), params[None, None, :], dim=1)
    assert same_bits(over_middle.transpose(1, 2), p)
    per_batch = map_(x, params[:3].view(3, 1, 1))
    assert_matches_reference(map_, x, per_batch, params[:3].view(3, 1, 1))
    scalar = map_(x, params[0])
    assert_matches_reference(map_, x, scalar, params[0])
    assert (map_(torch.full_like(x, -INF), params[:, None]) == 0).all()
    for bad in (math.nan, INF):
        spoilt = x.clone()
        spoilt[1, :, n // 2] = bad
        got = map_(spoilt, params[:, None])
        assert got[1].isnan().all()
        assert same_bits(got[[0, 2]], p[[0, 2]])


@pytest.mark.parametrize(
    ("name", "param"), [("entmax", INF), ("normmax", INF), ("normmax", 1.0), ("sq_pnorm_max", 1.0)]
)
def test_piecewise_constant_limits_have_zero_gradient(name, param, rng):
    x, w = randn(4, 9, rng=rng), randn(4, 9, rng=rng)
    _, g = gradient(MAPS[name], x, param, w)
    assert (g == 0).all()


@pytest.mark.parametrize("alpha", [2 + 1e-9, 2.0001, 2.25, 3.0, 20.0, 400.0])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e-3, 0.05])
def test_flat_rows_of_an_alpha_above_two(alpha, scale, rng):
    """All entries are near the maximum, and most of them are out."""
    x = scale * randn(4, 700, rng=rng)
    x[:, 1] = x[:, 0]
    x[0] += 1000
    p = MAPS["entmax"](x, alpha)
    assert_matches_reference(MAPS["entmax"], x, p, alpha)
