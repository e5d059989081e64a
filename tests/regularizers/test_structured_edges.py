"""Padding, masks, dtypes, batches and limits, for every structured Ω."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import fenchel as fy
from tests.regularizers.structured_cases import CASES, blocks, rebuild
from tests.regularizers.structured_truth import LEAN, close, pairs

pytestmark = pytest.mark.usefixtures("backend")


def absent(case):
    """For each block of scores where there is padding (or a word's own column), else None."""
    sizes = case.problem.sizes
    first = blocks(case.scores)[0]
    rows = torch.arange(first.shape[-2] if first.dim() > 2 else first.shape[-1])
    behind = rows >= sizes[:, :1]
    if isinstance(case.structure, fy.Sequence):
        found = [behind.unsqueeze(2).expand(first.shape)]
        for block in blocks(case.scores)[1:]:
            each = block.dim() == 4
            found.append(behind[:, 1:, None, None].expand(block.shape) if each else None)
        return found
    if first.dim() == 2:
        return [behind]
    columns = torch.arange(first.shape[-1])
    if isinstance(case.structure, fy.DependencyTree):
        own = columns == rows.unsqueeze(1) + 1
        return [behind.unsqueeze(2) | (columns > sizes).unsqueeze(1) | own]
    return [behind.unsqueeze(2) | (columns >= sizes[:, 1:]).unsqueeze(1)]


@pairs(padded=True, names=LEAN)
def test_padding_changes_nothing(omega, case):
    """Numbers are those of the instance alone, whatever is behind; gradients there are 0."""
    ours, off = omega.make(case.structure), absent(case)
    target, members = case.targets(3)
    garbage = rebuild(
        case.scores,
        [
            x if at is None else torch.where(at, torch.tensor(value, dtype=x.dtype), x)
            for x, at, value in zip(
                blocks(case.scores), off, (math.nan, math.inf, 0, 0, 0), strict=False
            )
        ],
    )
    leaves = rebuild(garbage, [x.clone().requires_grad_() for x in blocks(garbage)])
    mean = ours.predict(leaves, lengths=case.lengths)
    value = ours.conjugate(leaves, lengths=case.lengths)
    loss = ours.loss(leaves, target, lengths=case.lengths, cost=0.5)
    total = loss.sum() + value.sum() + sum(x.square().sum() for x in blocks(mean))
    for grad, at in zip(torch.autograd.grad(total, blocks(leaves)), off, strict=True):
        assert grad.isfinite().all()
        assert at is None or (grad[at] == 0).all()
    for row in range(len(value)):
        alone = case.instance(row)
        # SparseMAP's value is a sum over all parts; how torch adds them up depends on their number.
        close(ours.conjugate(alone.scores), value[row].detach(), 1e-15)
        exact = ours.predict(alone.scores)
        for block, full in zip(blocks(exact), blocks(mean), strict=True):
            cut = full[row][tuple(slice(size) for size in block.shape)]
            assert torch.equal(block, cut)
            left = full[row].detach().sum() - cut.detach().sum()
            assert abs(float(left)) < 1e-12
        whole = alone.problem
        chosen = _cut(case, members[row], whole, row)
        own = ours.loss(alone.scores, alone.natural([chosen]), cost=0.5)
        close(own, loss[row].detach(), 1e-13)


def _cut(case, member, whole, row):
    """A member's counts in the layout of its instance alone."""
    restored = case.problem.restore(member.expand(case.problem.scores.shape))
    small = whole.restore(whole.scores)
    parts = [
        full[row][tuple(slice(size) for size in block.shape)].reshape(-1)
        for full, block in zip(blocks(restored), blocks(small), strict=True)
    ]
    return torch.cat(parts)


@pairs(names=LEAN)
def test_what_must_not_be_used(omega, case):
    """-inf on a part: if the target does not use it the loss is finite, else infinite."""
    ours = omega.make(case.structure)
    problem = case.problem
    n = problem.n_unary
    target, members = case.targets(4)
    every = case.members()[0]
    unused = [p for p in range(n) if members[0, p] == 0 and every[:, p].any()]
    used = [p for p in range(n) if members[0, p] > 0 and not every[:, p].all()]
    for part, hit in [(p, False) for p in unused[:2]] + [(p, True) for p in used[:1]]:
        scores = rebuild(case.scores, [x.clone() for x in blocks(case.scores)])
        blocks(scores)[0].reshape(-1)[part] = -math.inf
        leaves = rebuild(scores, [x.requires_grad_() for x in blocks(scores)])
        loss = ours.loss(leaves, target, **case.sizes)
        assert (loss.reshape(-1)[0] == math.inf) == hit
        assert loss.reshape(-1)[1:].isfinite().all()
        grads = torch.autograd.grad(loss.sum(), blocks(leaves))
        assert all(grad.isfinite().all() for grad in grads)
        assert grads[0].reshape(-1)[part] == (-1 if hit else 0)
        mean = blocks(ours.predict(leaves, **case.sizes))[0]
        assert mean.reshape(-1)[part] == 0


@pairs(names=LEAN)
def test_float32_and_half(omega, case):
    """All is computed in float64, and rounded once."""
    ours = omega.make(case.structure)
    target, _ = case.targets(7)
    for dtype in (torch.float32, torch.bfloat16):
        rounded = rebuild(case.scores, [x.to(dtype) for x in blocks(case.scores)])
        exact = rebuild(rounded, [x.double() for x in blocks(rounded)])
        for low, high in zip(
            blocks(ours.predict(rounded, **case.sizes)),
            blocks(ours.predict(exact, **case.sizes)),
            strict=True,
        ):
            assert torch.equal(low, high.to(dtype))
        for call in (ours.conjugate, lambda x, **rest: ours.loss(x, target, **rest)):
            assert torch.equal(call(rounded, **case.sizes), call(exact, **case.sizes).to(dtype))
        leaf = rebuild(rounded, [x.clone().requires_grad_() for x in blocks(rounded)])
        ours.loss(leaf, target, **case.sizes).sum().backward()
        assert all(x.grad.dtype == dtype for x in blocks(leaf))


@pairs(names=LEAN)
def test_large_scores_give_the_best(omega, case):
    ours = omega.make(case.structure)
    large = rebuild(case.scores, [1e4 * x for x in blocks(case.scores)])
    best = fy.MAP(case.structure).predict(case.scores, **case.sizes)
    for mean, wanted in zip(blocks(ours.predict(large, **case.sizes)), blocks(best), strict=True):
        close(mean, wanted, 1e-12)


@pairs(names=("map", "sparsemap-", "dp-l2"))
def test_the_loss_is_zero_exactly_where_the_prediction_is_right(omega, case):
    ours = omega.make(case.structure)
    target, members = case.targets(8)
    problem, zeros = case.problem, [torch.zeros_like(x) for x in blocks(case.scores)]
    signs = 2 * members[:, : problem.n_unary] - 1
    seen = set()
    for lead in (0.0, 0.05, 0.3, 1.0, 4.0, 50.0):
        unary = lead * signs.reshape(zeros[0].shape)
        scores = rebuild(case.scores, [unary, *zeros[1:]])
        loss = ours.loss(scores, target, **case.sizes).reshape(-1)
        # The forbidden transitions of a case are allowed here, so the mean may use them.
        right = (case.flat(ours.predict(scores, **case.sizes)) == members).all(1)
        if omega.name != "map":  # whose value is also 0 at ties
            assert torch.equal(loss == 0, right)
        seen |= set(right.tolist())
        assert lead < 50 or (right.all() and (loss == 0).all())
    assert True in seen


@pairs(names=("map", "sparsemap-", "dp-l2"))
def test_the_loss_of_the_prediction_is_zero(omega, case):
    """Exactly, although sums in another order have other rounding errors."""
    ours = omega.make(case.structure)
    scores = rebuild(case.scores, [1e4 * x for x in blocks(case.scores)])
    members = case.flat(ours.predict(scores, **case.sizes))
    assert ((members - members.round()).abs() < 1e-9).all()
    leaves = rebuild(scores, [x.clone().requires_grad_() for x in blocks(scores)])
    loss = ours.loss(leaves, case.natural(list(members.round())), **case.sizes)
    assert (loss == 0).all()
    for grad in torch.autograd.grad(loss.sum(), blocks(leaves)):
        assert (grad.abs() < 1e-9).all()


@pairs(names=LEAN)
def test_empty_batches_and_more_axes(omega, case):
    ours = omega.make(case.structure)
    first = blocks(case.scores)[0]
    if len(case.batch_shape) != 1 or not isinstance(case.scores, torch.Tensor):
        pytest.skip("one batch axis and one tensor are what is reshaped here")
    target, _ = case.targets(9)
    mean, loss = ours.predict(first, **case.sizes), ours.loss(first, target, **case.sizes)
    more = {k: None if x is None else x.unsqueeze(1) for k, x in case.sizes.items()}
    assert torch.equal(ours.predict(first.unsqueeze(1), **more), mean.unsqueeze(1))
    again = ours.loss(first.unsqueeze(1), target.unsqueeze(1), **more)
    assert torch.equal(again, loss.unsqueeze(1))
    none = {k: None if x is None else x[:0] for k, x in case.sizes.items()}
    leaf = first[:0].clone().requires_grad_()
    empty = ours.predict(leaf, **none)
    assert empty.shape == leaf.shape
    assert ours.conjugate(leaf, **none).shape == (0,)
    total = ours.loss(leaf, target[:0], **none, cost=1.0).sum() + empty.sum()
    assert total == 0
    assert torch.autograd.grad(total, leaf)[0].shape == leaf.shape


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
