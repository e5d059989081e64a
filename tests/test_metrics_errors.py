"""What the metrics refuse, and in which words."""

from __future__ import annotations

import math

import pytest
import torch

import fenchel as fy
from fenchel import metrics
from fenchel.metrics import GoldMetrics

HALF = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
GOOD = torch.tensor([0, 1])
ERRORS = [
    (
        lambda: metrics.sparsemax_score(HALF.tolist(), GOOD),
        "sparsemax_score: expected `p` to be a torch.Tensor, but got list.",
    ),
    (
        lambda: metrics.sparsemax_score(HALF.long(), GOOD),
        "sparsemax_score: expected `p` of a floating dtype (float64, float32, float16 or "
        "bfloat16), but got torch.int64; convert with `p.float()`.",
    ),
    (
        lambda: metrics.zero_mass_rate(HALF, GOOD, dim=2),
        "zero_mass_rate: expected `dim` in [-2, 1] for `p` of shape (2, 3), but got 2.",
    ),
    (
        lambda: metrics.zero_mass_rate(HALF, [0, 1]),
        "zero_mass_rate: expected `target` to be a torch.Tensor, but got list.",
    ),
    (
        lambda: metrics.zero_mass_rate(HALF, GOOD.float()),
        "zero_mass_rate: expected `target` of class indices (int64), but got torch.float32.",
    ),
    (
        lambda: metrics.zero_mass_rate(HALF, GOOD.bool()),
        "zero_mass_rate: expected `target` of class indices (int64), but got torch.bool.",
    ),
    (
        lambda: metrics.zero_mass_rate(HALF, GOOD[:1]),
        "zero_mass_rate: expected `target` of class indices of shape (2,) (`p` of shape (2, 3) "
        "without dim 1), but got (1,).",
    ),
    (
        lambda: metrics.zero_mass_rate(HALF, GOOD.to("meta")),
        "zero_mass_rate: expected `target` on the device of `p` (cpu), but it is on meta.",
    ),
    (
        lambda: metrics.zero_mass_rate(HALF, GOOD + 2),
        "zero_mass_rate: expected class indices in [0, 2] in `target`, but got 3.",
    ),
    (
        lambda: metrics.zero_mass_rate(HALF, GOOD - 1),
        "zero_mass_rate: expected class indices in [0, 2] in `target`, but got -1.",
    ),
    (
        lambda: metrics.zero_mass_rate(HALF, GOOD, ignore_index=None),
        "zero_mass_rate: expected `ignore_index` to be an int, but got None.",
    ),
    (
        lambda: metrics.sparsemax_score(HALF * 2 - 1, GOOD),
        "sparsemax_score: expected probabilities that sum to 1 along the class axis of `p`, but "
        "row 0 has an entry of -1; apply a map such as fenchel.entmax to scores first.",
    ),
    (
        lambda: metrics.sparsemax_score(HALF * torch.tensor([[1.0], [2.0]]), GOOD),
        "sparsemax_score: expected probabilities that sum to 1 along the class axis of `p`, but "
        "row 1 sums to 2; apply a map such as fenchel.entmax to scores first.",
    ),
    (
        lambda: metrics.sparsemax_score(HALF * math.nan, GOOD),
        "sparsemax_score: expected probabilities that sum to 1 along the class axis of `p`, but "
        "row 0 sums to nan; apply a map such as fenchel.entmax to scores first.",
    ),
    (
        lambda: metrics.jensen_shannon(HALF, HALF[:1]),
        "jensen_shannon: expected a floating `target` (probabilities) of the shape and device of "
        "`p`, (2, 3) on cpu, but got (1, 3) on cpu; class indices must be int64.",
    ),
    (
        lambda: metrics.jensen_shannon(HALF, HALF * 3),
        "jensen_shannon: expected probabilities that sum to 1 along the class axis of `target`, "
        "but row 0 sums to 3; apply a map such as fenchel.entmax to scores first.",
    ),
    (
        lambda: metrics.epsilon_perplexity(HALF, GOOD, -1e-3),
        "epsilon_perplexity: `epsilon` must be at least 0 (0 is plain perplexity); got -0.001.",
    ),
    (
        lambda: metrics.epsilon_perplexity(HALF, GOOD, math.inf),
        "epsilon_perplexity: `epsilon` must be finite; got inf.",
    ),
    (
        lambda: GoldMetrics(epsilon="no"),
        "GoldMetrics: expected `epsilon` to be a number, but got str.",
    ),
    (
        lambda: GoldMetrics(dim=1.5),
        "GoldMetrics: expected `dim` to be an int, but got 1.5.",
    ),
    (
        lambda: GoldMetrics().update(HALF, GOOD + 2),
        "GoldMetrics.update: expected class indices in [0, 2] in `target`, but got 3.",
    ),
]


@pytest.mark.parametrize(("call", "message"), ERRORS)
def test_errors(call, message):
    with pytest.raises(fy.FenchelError) as error:
        call()
    assert str(error.value) == message
