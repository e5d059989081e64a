"""Bad input: one clear sentence each, word for word."""

from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy
from tests.maps.cases import every_map

X = torch.zeros(2, 3)
WRONG = {
    "not a tensor": (
        lambda m: m([1.0, 2.0]),
        "expected `scores` to be a torch.Tensor, but got list.",
    ),
    "integer": (
        lambda m: m(torch.zeros(2, 3, dtype=torch.int64)),
        "expected `scores` of a floating dtype (float64, float32, float16 or bfloat16), but got "
        "torch.int64; convert with `scores.float()`.",
    ),
    "boolean": (
        lambda m: m(torch.zeros(2, 3, dtype=torch.bool)),
        "expected `scores` of a floating dtype (float64, float32, float16 or bfloat16), but got "
        "torch.bool; convert with `scores.float()`.",
    ),
    "complex": (
        lambda m: m(torch.zeros(2, 3, dtype=torch.complex64)),
        "expected `scores` of a floating dtype (float64, float32, float16 or bfloat16), but got "
        "torch.complex64.",
    ),
    "float8": (
        lambda m: m(torch.zeros(2, 3).to(torch.float8_e5m2)),
        "expected `scores` of a floating dtype (float64, float32, float16 or bfloat16), but got "
        "torch.float8_e5m2; convert with `scores.float()`.",
    ),
    "sparse": (
        lambda m: m(X.to_sparse()),
        "expected dense `scores`, but got layout torch.sparse_coo; convert with "
        "`scores.to_dense()` or pad nested tensors.",
    ),
    "dim too large": (
        lambda m: m(X, dim=2),
        "expected `dim` in [-2, 1] for `scores` of shape (2, 3), but got 2.",
    ),
    "dim too small": (
        lambda m: m(X, dim=-3),
        "expected `dim` in [-2, 1] for `scores` of shape (2, 3), but got -3.",
    ),
    "dim not an int": (lambda m: m(X, dim=1.0), "expected `dim` to be an int, but got 1.0."),
    "dim None": (lambda m: m(X, dim=None), "expected `dim` to be an int, but got None."),
    "dim of a number": (
        lambda m: m(torch.tensor(1.0), dim=1),
        "expected `dim` in [-1, 0] for `scores` of shape (), but got 1.",
    ),
    "mask dtype": (
        lambda m: m(X, mask=torch.ones(2, 3)),
        "expected `mask` to be a boolean tensor (True = keep), but got torch.float32.",
    ),
    "mask not a tensor": (
        lambda m: m(X, mask=[True, True, False]),
        "expected `mask` to be a boolean tensor (True = keep), but got list.",
    ),
    "mask device": (
        lambda m: m(X, mask=torch.ones(2, 3, dtype=torch.bool, device="meta")),
        "expected `mask` on the device of `scores` (cpu), but it is on meta.",
    ),
    "mask shape": (
        lambda m: m(X, mask=torch.ones(2, 2, dtype=torch.bool)),
        "expected `mask` broadcastable to the shape of `scores` (2, 3), but got (2, 2).",
    ),
    "mask of higher rank": (
        lambda m: m(X, mask=torch.ones(1, 2, 3, dtype=torch.bool)),
        "expected `mask` broadcastable to the shape of `scores` (2, 3), but got (1, 2, 3).",
    ),
}


@every_map
@pytest.mark.parametrize(("call", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_scores_dim_or_mask(map_, call, message):
    with pytest.raises(fy.FenchelError) as error:
        call(map_.function)
    assert str(error.value) == f"{map_.name}: {message}"


ALPHA = "`alpha` must be above 0 (1 is softmax, 2 is sparsemax)"
BETA = "`beta` must be in (0, 1] (1 is softmax; above it the entropy is not concave)"
WRONG_PARAMETER = [
    (fy.entmax, 0.0, f"entmax: {ALPHA}; got 0.0."),
    (fy.entmax, -1.5, f"entmax: {ALPHA}; got -1.5."),
    (fy.entmax, math.nan, f"entmax: {ALPHA}; got nan."),
    (
        fy.normmax,
        0.5,
        "normmax: `q` must be at least 1 (1 is argmax, inf is uniform on the support of "
        "sparsemax); got 0.5.",
    ),
    (
        fy.budget,
        -1,
        "budget: `k` must be a finite number of at least 0 (the mass to distribute); got -1.",
    ),
    (fy.budget, 4, "budget: `k` must be at most the 3 entries along dim 1; got 4."),
    (
        fy.sq_pnorm_max,
        0.5,
        "sq_pnorm_max: `q` must be at least 1 (1 is argmax, 2 is sparsemax); got 0.5.",
    ),
    (
        fy.sq_pnorm_max,
        torch.tensor(1.5),
        "sq_pnorm_max: expected `q` to be a number, but got Tensor.",
    ),
    (fy.renyimax, 1.5, f"renyimax: {BETA}; got 1.5."),
    (fy.renyimax, math.nan, f"renyimax: {BETA}; got nan."),
    (
        fy.renyimax,
        torch.tensor(0.5),
        "renyimax: expected `beta` to be a number, but got Tensor.",
    ),
    (
        fy.entmax,
        "1.5",
        "entmax: expected `alpha` to be a number or a torch.Tensor, but got str.",
    ),
    (
        fy.entmax,
        True,
        "entmax: expected `alpha` to be a number or a torch.Tensor, but got bool.",
    ),
    (
        fy.entmax,
        torch.tensor(2),
        "entmax: expected `alpha` of a floating dtype, but got torch.int64.",
    ),
    (
        fy.entmax,
        torch.full((3,), 1.5),
        "entmax: expected `alpha` broadcastable to (2, 1) (one value per row: the shape of "
        "`scores` with size 1 along dim 1), but got (3,).",
    ),
    (
        fy.budget,
        torch.ones(2, 2),
        "budget: expected `k` broadcastable to (2, 1) (one value per row: the shape of `scores` "
        "with size 1 along dim 1), but got (2, 2).",
    ),
    (
        fy.normmax,
        torch.ones(2, 1, device="meta"),
        "normmax: expected `q` on the device of `scores` (cpu), but it is on meta.",
    ),
]


@pytest.mark.parametrize(("function", "parameter", "message"), WRONG_PARAMETER)
def test_wrong_parameter(function, parameter, message):
    with pytest.raises(fy.FenchelError) as error:
        function(X, parameter)
    assert str(error.value) == message


# A bare int is refused before it is looked at: test_positional.py.
WRONG_INT = [
    ("alpha", fy.entmax, 10**400, "entmax: `alpha` is too large for a float; use float('inf')."),
    ("beta", fy.renyimax, 0, f"renyimax: {BETA}; got 0."),
]


@pytest.mark.parametrize(
    ("name", "function", "parameter", "message"), WRONG_INT, ids=["entmax", "renyimax"]
)
def test_wrong_int(name, function, parameter, message):
    with pytest.raises(fy.FenchelError) as error:
        function(X, **{name: parameter})
    assert str(error.value) == message


@every_map
def test_a_number_out_of_range_is_refused(map_):
    argument = map_.declared.argument
    if argument is None:
        pytest.skip("has no parameter")
    outside = [argument.low - 1, math.nan]
    outside += [argument.low] if argument.above else []
    outside += [argument.high + 1] if argument.high < math.inf else []
    outside += [math.inf] if argument.finite else []
    for value in outside:
        with pytest.raises(fy.FenchelError) as error:
            map_.function(X, **{argument.keyword: value})
        assert str(error.value) == (
            f"{map_.name}: `{argument.keyword}` must be {argument.expected}; got {value!r}."
        )


@every_map
@pytest.mark.parametrize("gamma", [0, -1.0, math.inf, math.nan])
def test_gamma_is_positive_and_finite(map_, gamma):
    with pytest.raises(fy.FenchelError) as error:
        map_.function(X, gamma=gamma)
    assert str(error.value) == (
        f"{map_.name}: `gamma` must be a finite number above 0; got {gamma!r}."
    )
    with pytest.raises(fy.FenchelError, match="expected `gamma` of a floating dtype"):
        map_.function(X, gamma=torch.tensor(1))


def test_numbers_of_numpy_are_numbers():
    numpy = pytest.importorskip("numpy")
    x = torch.tensor([[1.0, 0.5, -1.0]])
    assert torch.equal(fy.entmax(x, numpy.float32(1.25), dim=numpy.int64(1)), fy.entmax(x, 1.25))


def test_one_exception_type_for_wrong_arguments():
    assert issubclass(fy.FenchelError, ValueError)


@pytest.mark.parametrize(("function", "low"), [(fy.entmax, 0.0), (fy.normmax, 0.5)])
def test_alpha_values_in_a_tensor_are_not_checked_but_show(function, low, backend):
    alpha = torch.tensor([[1.5], [low], [math.nan]])
    p = function(torch.tensor([[1.0, 0.5, 0.0]] * 3), alpha)
    assert torch.equal(p.isnan().all(-1), torch.tensor([False, True, True]))
    assert torch.equal(p[0], function(torch.tensor([[1.0, 0.5, 0.0]]), alpha[:1])[0])


def test_a_k_above_n_in_a_tensor_fills_what_is_open(backend):
    x = torch.tensor([[0.3, -1.0, -math.inf, 2.0], [0.0, 0.0, 0.0, 0.0]]).requires_grad_()
    k = torch.tensor([[100.0], [math.inf]], requires_grad=True)
    p = fy.budget(x, k)
    assert torch.equal(p, torch.tensor([[1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]]))
    p.square().sum().backward()
    assert (x.grad == 0).all() and (k.grad == 0).all()


def test_negative_k_in_a_tensor_shows(backend):
    p = fy.budget(torch.zeros(2, 3), torch.tensor([[1.0], [-1.0]]))
    assert torch.equal(p.isnan().all(-1), torch.tensor([False, True]))
