"""Structured losses through the doors that class losses have."""

from __future__ import annotations

import copy

import pytest
import torch

import fenchel as fy
from fenchel import FenchelError
from fenchel.nn import FenchelYoungLoss
from tests.regularizers.structured_cases import blocks
from tests.regularizers.structured_truth import LEAN, close, pairs


def refuses(sentence, call, *args, **kwargs):
    with pytest.raises(FenchelError) as error:
        call(*args, **kwargs)
    assert str(error.value) == sentence


@pairs(names=LEAN)
def test_reductions(omega, case):
    ours = omega.make(case.structure)
    target, _ = case.targets(1)
    unary = torch.rand_like(blocks(case.scores)[0])
    for cost in (None, 0.6, unary):
        rows = ours.loss(case.scores, target, **case.sizes, cost=cost)
        for reduction, wanted in [("none", rows), ("sum", rows.sum()), ("mean", rows.mean())]:
            loss = fy.fenchel_young_loss(
                case.scores, target, ours, **case.sizes, cost=cost, reduction=reduction
            )
            assert torch.equal(loss, wanted)
            module = FenchelYoungLoss(ours, cost=cost, reduction=reduction)
            assert torch.equal(module(case.scores, target, **case.sizes), wanted)
        default = fy.fenchel_young_loss(case.scores, target, ours, **case.sizes, cost=cost)
        assert torch.equal(default, rows.mean())
        assert torch.equal(
            FenchelYoungLoss(ours, cost=cost)(case.scores, target, **case.sizes), default
        )


def test_lengths_and_masks_count(rng):
    x = torch.randn(2, 4, 3, generator=rng)
    y = torch.randint(3, (2, 4), generator=rng)
    ours = fy.Marginals(fy.Sequence(3))
    short = fy.fenchel_young_loss(x, y, ours, lengths=torch.tensor([4, 2]), reduction="none")
    full = fy.fenchel_young_loss(x, y, ours, reduction="none")
    assert short[0] == full[0] and short[1] < full[1]
    ones = torch.ones(2, 4, dtype=torch.int64)
    mask = torch.tensor([True, True, False])
    masked = fy.fenchel_young_loss(x, ones, ours, mask=mask, reduction="none")
    assert (masked < fy.fenchel_young_loss(x, ones, ours, reduction="none")).all()
    kept = fy.fenchel_young_loss(x[..., :2], ones, fy.Marginals(fy.Sequence(2)), reduction="none")
    close(masked, kept, 1e-6)


def test_an_empty_batch():
    ours = fy.SparseMAP(fy.Sequence(3))
    x, y = torch.zeros(0, 4, 3), torch.zeros(0, 4, dtype=torch.int64)
    assert fy.fenchel_young_loss(x, y, ours, reduction="none").shape == (0,)
    assert fy.fenchel_young_loss(x, y, ours, reduction="sum") == 0
    assert fy.fenchel_young_loss(x, y, ours).isnan()  # as torch does


OPTIONS = {
    "weight": torch.ones(3),
    "ignore_index": 0,
    "label_smoothing": 0.1,
    "dim": 1,
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_for_classes_are_refused(option):
    x, y = torch.zeros(4, 3), torch.zeros(4, dtype=torch.int64)
    ours = fy.MAP(fy.Sequence(3))
    value = {option: OPTIONS[option]}
    sentence = f"`{option}` is for classes, not for structures; leave it out."
    refuses(f"fenchel_young_loss: {sentence}", fy.fenchel_young_loss, x, y, ours, **value)
    refuses(f"nn.FenchelYoungLoss: {sentence}", FenchelYoungLoss, ours, **value)


def test_options_for_structures_are_refused():
    x, y = torch.zeros(2, 3), torch.tensor([0, 1])
    sentence = (
        "fenchel_young_loss: `lengths` and `mask` are for structures; with classes, -inf in "
        "`scores` is a mask."
    )
    for value in ({"lengths": torch.tensor([3, 3])}, {"mask": torch.ones(2, 3) > 0}):
        refuses(sentence, fy.fenchel_young_loss, x, y, fy.Gini(), **value)
        refuses(sentence, FenchelYoungLoss("gini"), x, y, **value)


def test_other_arguments():
    x, y = torch.zeros(2, 3), torch.tensor([0, 1])
    ours = fy.SparseMAP(fy.OneOf())
    with pytest.raises(FenchelError, match="reduction"):
        fy.fenchel_young_loss(x, y, ours, reduction="average")
    with pytest.raises(FenchelError, match="reduction"):
        FenchelYoungLoss(ours, reduction="average")
    for wrong in (fy.OneOf(), 3, None):
        with pytest.raises(FenchelError, match="omega"):
            fy.fenchel_young_loss(x, y, wrong)
        with pytest.raises(FenchelError, match="omega"):
            FenchelYoungLoss(wrong)


def test_one_of_is_a_class_loss(rng):
    x = torch.randn(8, 5, generator=rng, dtype=torch.float64)
    y = torch.randint(5, (8,), generator=rng)
    for structured, plain in [
        (fy.SparseMAP(fy.OneOf()), fy.Gini()),
        (fy.Marginals(fy.OneOf()), fy.Shannon()),
        (fy.MAP(fy.OneOf()), fy.Zero()),
    ]:
        for cost in (None, 0.7):
            for reduction in ("none", "mean", "sum"):
                options = {"cost": cost, "reduction": reduction}
                close(
                    fy.fenchel_young_loss(x, y, structured, **options),
                    fy.fenchel_young_loss(x, y, plain, **options),
                    1e-12,
                )


def test_the_module():
    ours = fy.SparseMAP(fy.DependencyTree())
    module = FenchelYoungLoss(ours, cost=1.0, reduction="sum")
    assert repr(module) == (
        "FenchelYoungLoss(SparseMAP(DependencyTree(single_root=True, projective=False), gamma=1), "
        "reduction='sum', cost=1.0)"
    )
    assert list(module.parameters()) == [] and module.state_dict() == {}
    cost = torch.ones(1, 3, 4)
    held = FenchelYoungLoss(ours, cost=cost)
    assert list(held.state_dict()) == ["cost"]
    x, y = torch.zeros(1, 3, 4), torch.tensor([[0, 1, 1]])
    assert torch.equal(copy.deepcopy(held)(x, y), held(x, y))
    assert module(x, y) > FenchelYoungLoss(ours)(x, y)
