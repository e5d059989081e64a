"""What every rank checks of values and gradients; see test_vocab_parallel.py."""

from __future__ import annotations

import math
import warnings

import torch

import fenchel as fy
from fenchel.losses import _sharded_layer as sharded
from tests.losses.vocab_parallel_cases import assert_same, case, split

ALPHAS = (0.5, 1.0, 1.3, 1.5, 2.0, 3.0, math.inf)


class most:
    """Rows with more than so many candidates are solved from sums."""

    def __init__(self, number):
        self.number = number

    def __enter__(self):
        self.before, sharded.MOST = sharded.MOST, self.number

    def __exit__(self, *_):
        sharded.MOST = self.before


def alphas_and_dtypes():
    for dtype in (torch.float64, torch.float32):
        for alpha in ALPHAS:
            hidden, weight, bias, target = case(20, 60, 5, dtype=dtype)
            assert_same(hidden, weight, target, alpha, bias=bias, reduction="none")
            assert_same(hidden, weight, target, alpha)


def rows_from_sums():
    for scale in (0.01, 1.0):
        for alpha in (0.1, 0.7, 0.999, 1.0, 1.001, 1.2, 1.5, 1.9, 2.0):
            hidden, weight, bias, target = case(70, 90, 5, scale=scale, ignored=-100)
            with most(3):
                assert_same(hidden, weight, target, alpha, bias=bias, reduction="none")
    for scale in (0.01, 1.0, 100.0):
        for alpha in (1.0, 1.02, 1.5, 2.0):
            hidden, weight, bias, target = case(70, 90, 5, scale=scale, dtype=torch.float32)
            with most(3):
                assert_same(hidden, weight, target, alpha, bias=bias)


def several_chunks():
    hidden, weight, bias, target = case((2, 300), 30, 4)
    assert_same(hidden, weight, target, bias=bias, reduction="none")


def uneven_shards():
    for alpha in (1.0, 1.5):
        for classes in (61, 4):  # with 4 classes ranks are without any
            hidden, weight, bias, target = case(20, classes, 5)
            assert_same(hidden, weight, target, alpha, bias=bias, uneven=True, reduction="none")
            with most(2):
                assert_same(hidden, weight, target, alpha, uneven=True)


def ignored_rows():
    hidden, weight, bias, target = case(20, 60, 5, ignored=7)
    assert_same(hidden, weight, target, bias=bias, ignore_index=7)
    with torch.no_grad():
        hidden[target == 7] = math.nan
    for alpha in (1.0, 1.5):
        assert_same(hidden, weight, target, alpha, bias=bias, ignore_index=7, reduction="sum")
    target.fill_(7)
    assert_same(hidden, weight, target, bias=bias, ignore_index=7, reduction="sum")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss = fy.vocab_parallel_entmax_loss(
            hidden, weight[slice(*split(60, False))], target, ignore_index=7
        )
    assert loss.isnan() and "every target is `ignore_index`" in str(caught[0].message)
    none = hidden[:0].detach().requires_grad_()
    assert_same(none, weight, target[:0], bias=bias, reduction="sum")


def learned_alpha():
    hidden, weight, bias, target = case(24, 60, 5, ignored=-100)
    for value in (0.5, 1.0, 1.2, 1.5, 2.0):
        alpha = torch.tensor(value, dtype=torch.float64, requires_grad=True)
        assert_same(hidden, weight, target, alpha, bias=bias)
        with most(3):
            assert_same(hidden, weight, target, alpha, bias=bias)
    mixed = torch.tensor([1.0, 1.3, 1.5, 2.0, 2.5, 0.6]).double().repeat(4)[:, None]
    mixed.requires_grad_()
    assert_same(hidden, weight, target, mixed, reduction="none")
    with most(3):
        assert_same(hidden, weight, target, mixed, reduction="none")


def smoothed_targets():
    hidden, weight, bias, target = case(24, 60, 5, ignored=-100)
    alpha = torch.tensor(1.4, dtype=torch.float64, requires_grad=True)
    for uneven in (False, True):
        for value in (0.5, 1.0, 1.5, 2.0, alpha):
            kwargs = {"label_smoothing": 0.1, "uneven": uneven}
            assert_same(hidden, weight, target, value, bias=bias, reduction="none", **kwargs)
    with torch.no_grad():
        bias[::3] = -math.inf
        hidden[target == -100] = math.nan
        target[:] = torch.where(target % 3 == 0, target + 1, target)
    assert_same(hidden, weight, target, bias=bias, label_smoothing=0.3, reduction="none")


def masked_and_broken():
    hidden, weight, bias, target = case(12, 40, 5)
    with torch.no_grad():
        bias[::3] = -math.inf
        target[:] = torch.where(target % 3 == 0, target - 1, target).clamp(min=1)
        target[0] = 3  # masked: the loss is infinite
    for alpha in (1.0, 1.5):
        got = assert_same(hidden, weight, target, alpha, bias=bias, reduction="none")
        assert got[0] == math.inf and got[1:].isfinite().all()
    with torch.no_grad():
        hidden[1] = math.nan
        weight[3, 0] = math.inf  # for every row one class is infinite
    shard = weight.detach()[slice(*split(40, False))]
    for alpha in (1.0, 1.5):
        losses = fy.vocab_parallel_entmax_loss(hidden, shard, target, alpha, reduction="none")
        wanted = fy.linear_entmax_loss(hidden, weight, target, alpha, reduction="none")
        assert torch.equal(losses.isnan(), wanted.isnan())
    below = torch.full((12, 1), 1.5)
    below[4] = -0.5  # no alpha
    fine = torch.randn(40, 5, generator=torch.Generator().manual_seed(0)).double()
    for function, part in (
        (fy.vocab_parallel_entmax_loss, fine[slice(*split(40, False))]),
        (fy.linear_entmax_loss, fine),
    ):
        losses = function(hidden.nan_to_num(), part, target, below, reduction="none")
        assert losses.isnan().nonzero().tolist() == [[4]]
    for alpha in (1.0, 1.5):  # nothing is open
        everything = torch.full_like(bias.detach(), -math.inf)
        assert_same(
            hidden.detach().nan_to_num().requires_grad_(),
            weight.detach().nan_to_num(posinf=0.0).requires_grad_(),
            target,
            alpha,
            bias=everything.requires_grad_(),
            reduction="none",
        )


def ties_and_far_targets():
    hidden, weight, _, target = case(12, 40, 5)
    with torch.no_grad():  # whole numbers: no product rounds, ties stay ties
        hidden.round_()
        weight.round_()
        weight[20:] = weight[:20]
    for alpha in ALPHAS:
        assert_same(hidden, weight, target, alpha, reduction="none")
    big = (1e3 * hidden.detach()).requires_grad_()
    for alpha in ALPHAS:
        assert_same(big, weight, target, alpha, reduction="none", tolerance=1e-9)


def half_precision():
    hidden, weight, bias, target = case(20, 60, 5, dtype=torch.bfloat16)
    assert_same(hidden, weight, target, bias=bias)
    with most(3):
        assert_same(hidden, weight, target, bias=bias)
    hidden, weight, bias, target = case(20, 60, 5, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(hidden, weight, target, bias=bias, tolerance=2e-2)


def plain_torch():
    hidden, weight, bias, target = case(20, 60, 5)
    with fy.use_backend("reference"):
        for alpha in (1.0, 1.5):
            assert_same(hidden, weight, target, alpha, bias=bias)
