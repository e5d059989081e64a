"""How structured regularizers are used: a user's own structure, memory layouts, modes, copies."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import fenchel as fy
from fenchel import FenchelError
from tests.regularizers.structured_truth import close, projection
from tests.structures.case import refuses


class Interval(fy.Structure):
    """One contiguous run of items, known by its argmax alone."""

    def argmax(self, scores):
        n = len(scores)
        runs = [(i, j) for i in range(n) for j in range(i + 1, n + 1)]
        i, j = max(runs, key=lambda run: float(scores[run[0] : run[1]].sum()))
        best = torch.zeros_like(scores)
        best[i:j] = 1
        return best


class Given(fy.Structure):
    """Whatever a function says is best."""

    def __init__(self, function, event_dim=1):
        self.function, self.event_dim = function, event_dim

    def argmax(self, scores):
        return self.function(scores)


def intervals(n):
    runs = itertools.combinations(range(n + 1), 2)
    return torch.tensor([[float(i <= t < j) for t in range(n)] for i, j in runs]).double()


def test_a_structure_of_ones_own(rng):
    x = torch.randn(2, 3, 5, generator=rng, dtype=torch.float64)
    members = intervals(5)
    for gamma in (1.0, 0.3):
        ours = fy.SparseMAP(Interval(), gamma)
        found = [projection(members, row, 5, gamma) for row in x.reshape(-1, 5)]
        close(ours.conjugate(x).reshape(-1), torch.stack([value for value, _ in found]))
        close(ours.predict(x).reshape(-1, 5), torch.stack([mean for _, mean in found]))
    close(fy.MAP(Interval()).conjugate(x), (x @ members.T).amax(-1))
    y = members[torch.randint(len(members), (2, 3), generator=rng)]
    leaf = x.clone().requires_grad_()
    for ours in (fy.SparseMAP(Interval()), fy.MAP(Interval())):
        loss = ours.loss(leaf, y, cost=0.5)
        (grad,) = torch.autograd.grad(loss.sum(), leaf)
        close(grad, ours.predict(x + 0.5 * (1 - y)) - y)
        assert (loss >= 0).all()
        assert torch.equal(ours.loss(x, y.bool()), ours.loss(x, y.long()))
    assert torch.autograd.gradcheck(fy.SparseMAP(Interval()).predict, leaf, fast_mode=True)


def test_a_structure_of_ones_own_with_masks_and_axes(rng):
    x = torch.randn(4, 5, generator=rng)
    mask = torch.ones(5, dtype=torch.bool)
    mask[2] = False
    mean = fy.SparseMAP(Interval()).predict(x, mask=mask)
    assert (mean[:, 2] == 0).all() and mean.dtype == torch.float32
    assert (mean.sum(1) > 0).all()
    assert fy.SparseMAP(Interval()).predict(x[:0]).shape == (0, 5)
    # With two axes of its own: the best row of a matrix.
    rows = Given(lambda s: (torch.arange(len(s)) == s.sum(1).argmax())[:, None].expand(s.shape), 2)
    mean = fy.SparseMAP(rows).predict(x.reshape(1, 4, 5).double())
    close(mean[0, :, 0], fy.sparsemax(x.double().sum(1) / 5), 1e-9)


def test_an_argmax_that_is_wrong():
    x = torch.tensor([0.3, 0.1, -1.5, 0.4])
    for function, sentence in [
        (lambda s: [1], "expected a tensor of 0s and 1s of shape (4,), but got list."),
        (lambda s: s[:2], "expected a tensor of 0s and 1s of shape (4,), but got (2,)."),
        (lambda s: s * 0 + 0.5, "expected 0s and 1s, but got other values."),
        (lambda s: s * math.nan, "expected 0s and 1s, but got other values."),
    ]:
        for make in (fy.MAP, fy.SparseMAP):
            refuses(f"Given.argmax: {sentence}", make(Given(function)).predict, x)
    past = Given(lambda s: torch.eye(4)[0])
    for make in (fy.MAP, fy.SparseMAP):
        refuses(
            "Given.argmax: expected a structure without parts of score -inf, but got one that uses "
            "them; either it looks past the mask, or too much is masked.",
            make(past).predict,
            x,
            mask=torch.tensor([False, True, True, True]),
        )
    refuses(
        "SparseMAP.predict: Given has no `lengths`; mask what is not there with `mask` or -inf.",
        fy.SparseMAP(past).predict,
        x,
        lengths=torch.tensor(2),
    )
    sentence = "SparseMAP.loss: expected `target` as 0s and 1s of the shape of the scores (4,), but"
    refuses(f"{sentence} got ().", fy.SparseMAP(past).loss, x, torch.tensor(1))
    refuses(
        "SparseMAP.loss: expected 0s and 1s in `target`, but got other values.",
        fy.SparseMAP(past).loss,
        x,
        torch.tensor([0, 2, 0, 0]),
    )
    refuses(
        "Marginals: Given: there is no dynamic program for the smoothing 'entropy'; use SparseMAP, "
        "which needs only the argmax.",
        fy.Marginals,
        past,
    )
    refuses(
        "Given: instance 0 of the batch has no structure with a finite score; too much is masked.",
        fy.SparseMAP(Given(lambda s: None)).predict,
        x,
    )
    with pytest.raises(ZeroDivisionError):
        fy.SparseMAP(Given(lambda s: 1 / 0)).predict(x)
    with pytest.raises(FenchelError, match="at least 2 axes"):
        fy.SparseMAP(Given(lambda s: s, 2)).predict(x)


def test_an_argmax_that_moves_about_ends():
    """Not the best structure, another one each time: it ends, in a mean of what it gave."""
    calls = itertools.count()

    def anything(scores):
        return torch.eye(4)[next(calls) % 4]

    mean = fy.SparseMAP(Given(anything)).predict(torch.tensor([0.3, 0.1, -1.5, 0.4]))
    close(mean.sum(), torch.tensor(1.0), 1e-6)
    assert next(calls) < 2000


def test_scores_and_targets_are_left_alone(rng):
    x = torch.randn(2, 3, 4, generator=rng, dtype=torch.float64)
    before = x.clone()
    heads = torch.tensor([[0, 1, 1], [2, 0, 2]])
    for make in (fy.MAP, fy.SparseMAP, fy.Marginals):
        make(fy.DependencyTree()).loss(x, heads, cost=1.0)
        make(fy.DependencyTree()).predict(x, mask=torch.ones(4, dtype=torch.bool))
    assert torch.equal(x, before)
    assert torch.equal(heads, torch.tensor([[0, 1, 1], [2, 0, 2]]))


def test_expanded_scores_share_their_gradient(rng):
    leaf = torch.randn(1, 3, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    heads = torch.tensor([[0, 1, 1], [2, 0, 2]])
    for make in (fy.MAP, fy.SparseMAP, fy.Marginals):
        ours = make(fy.DependencyTree())
        (grad,) = torch.autograd.grad(ours.loss(leaf.expand(2, 3, 4), heads).sum(), leaf)
        alone = [torch.autograd.grad(ours.loss(leaf[0], y), leaf)[0] for y in heads]
        close(grad, sum(alone), 1e-12)
