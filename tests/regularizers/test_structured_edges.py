"""Limits that are other maps, margins, and bits that do not depend on the batch."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from tests.regularizers.structured_cases import CASES
from tests.regularizers.structured_truth import close

pytestmark = pytest.mark.usefixtures("backend")


def test_one_of_is_the_simplex(rng):
    x = torch.randn(40, 6, generator=rng, dtype=torch.float64)
    y = torch.randint(6, (40,), generator=rng)
    one = fy.OneOf()
    close(fy.SparseMAP(one).predict(x), fy.sparsemax(x), 1e-12)
    close(fy.SparseMAP(one).loss(x, y), fy.sparsemax_loss(x, y, reduction="none"), 1e-12)
    close(fy.Marginals(one).predict(x), x.softmax(-1), 1e-12)
    close(fy.Marginals(one).loss(x, y), F.cross_entropy(x, y, reduction="none"), 1e-12)
    close(fy.MAP(one).loss(x, y), fy.Zero().loss(x, y), 1e-12)
    for gamma in (0.2, 3.0):
        close(fy.SparseMAP(one, gamma).loss(x, y), (gamma * fy.Gini()).loss(x, y), 1e-12)
    margin = F.multi_margin_loss(x, y, reduction="none")
    hinge = fy.MAP(one).loss(x, y, cost=1.0)
    wrong = (1 - F.one_hot(y, 6)) + x - x.gather(1, y[:, None])
    close(hinge, wrong.amax(1).clamp(min=0), 1e-12)
    assert (hinge <= 6 * margin + 1e-12).all()


@pytest.mark.parametrize("k", [1, 2, 4])
def test_k_subsets_are_the_capped_simplex(k, rng):
    x = torch.randn(40, 6, generator=rng, dtype=torch.float64)
    close(fy.SparseMAP(fy.KSubsets(k)).predict(x), fy.budget(x, k), 1e-10)


def test_margins():
    assert fy.MAP(fy.OneOf()).margin == 0
    assert fy.SparseMAP(fy.OneOf(), 0.5).margin == 0.5
    assert fy.Marginals(fy.OneOf()).margin == math.inf
    chain = fy.Sequence(2)
    assert fy.SmoothedDP(chain, "entropy").margin == math.inf
    assert fy.SmoothedDP(chain, "l2", 0.7).margin == 0.7
    for ours in (fy.SparseMAP(fy.OneOf(), 0.5), fy.SmoothedDP(chain, "l2", 0.5)):
        one = isinstance(ours.structure, fy.OneOf)
        for lead in (0.4999, 0.5, 0.7):
            x = torch.tensor([lead, 0.0], dtype=torch.float64)
            target = torch.tensor(0) if one else torch.tensor([0])
            loss = ours.loss(x if one else x.unsqueeze(0), target)
            assert (loss == 0) == (lead >= ours.margin), (ours, lead)


def test_equal_instances_are_equal_whatever_the_batch(threads, rng):
    for case in CASES:
        if case.batch_shape != (2,) or case.mask is not None:
            continue
        if not isinstance(case.scores, torch.Tensor):
            continue
        many = case.scores[:1].expand(33, *case.scores.shape[1:]).clone()
        many[::2] = torch.randn(many[::2].shape, generator=rng, dtype=torch.float64)
        for count in (1, 4):
            threads(count)
            means = fy.SparseMAP(case.structure).predict(many)[1::2]
            alone = fy.SparseMAP(case.structure).predict(case.scores[0])
            assert torch.equal(means, alone.expand_as(means))
