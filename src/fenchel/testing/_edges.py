"""What holds at the edges: padding, masks, dtypes, large scores, exact zeros, empty batches."""

from __future__ import annotations

import copy
import math
import pickle

import torch
from torch import Tensor

from fenchel.regularizers import MAP
from fenchel.structures.problem import Problem
from fenchel.testing._cases import StructureCase, blocks, rebuild, scores_of
from fenchel.testing._failure import close, expect, same
from fenchel.testing._structured import Omega, holds, is_listed, is_smooth


@holds("edges", lambda omega, case: case.lengths is not None, lean=True)
def padding_changes_nothing(omega: Omega, case: StructureCase) -> None:
    """Numbers are those of the instance alone, whatever is behind; gradients there are 0."""
    off = case.padding()
    target, members = case.targets(3)
    garbage = []
    for block, at, number in zip(
        blocks(case.scores), off, (math.nan, math.inf, 0.0, 0.0, 0.0), strict=False
    ):
        filled = torch.tensor(number, dtype=block.dtype)
        garbage.append((block if at is None else torch.where(at, filled, block)).clone())
    leaves = rebuild(case.scores, [x.requires_grad_() for x in garbage])
    mean = omega.predict(leaves, lengths=case.lengths)
    value = omega.conjugate(leaves, lengths=case.lengths)
    loss = omega.loss(leaves, target, lengths=case.lengths, cost=0.5)
    total = loss.sum() + value.sum() + torch.stack([x.square().sum() for x in blocks(mean)]).sum()
    for grad, at in zip(torch.autograd.grad(total, blocks(leaves)), off, strict=True):
        expect(grad.isfinite(), "expected finite gradients, but some are not")
        if at is not None:
            same(grad[at], torch.zeros_like(grad[at]), "gradients on padding")
    for row in range(len(value.reshape(-1))):
        alone = case.instance(row)
        # How torch adds up the parts of a value depends on their number.
        one = omega.conjugate(alone.scores)
        close(one, value.reshape(-1)[row], 1e-15, f"the conjugate of instance {row} alone")
        flat = case.problem.restore(case.flat(mean).detach())
        for block, full in zip(blocks(omega.predict(alone.scores)), blocks(flat), strict=True):
            full = full.reshape(-1, *full.shape[len(case.batch_shape) :])[row]
            cut = full[tuple(slice(size) for size in block.shape)]
            same(block, cut, f"the mean of instance {row} alone")
            left = float(full.sum() - cut.sum())
            expect(abs(left) < 1e-12, f"expected no mass on padding, but instance {row} has {left}")
        chosen = _cut(case, members[row], alone.problem, row)
        own = omega.loss(alone.scores, alone.natural([chosen]), cost=0.5)
        close(own, loss.reshape(-1)[row], 1e-13, f"the loss of instance {row} alone")


def _cut(case: StructureCase, member: Tensor, alone: Problem, row: int) -> Tensor:
    """A member's counts in the layout of its instance alone."""
    restored = blocks(case.problem.restore(member.expand(case.problem.scores.shape)))
    small = blocks(alone.restore(alone.scores))
    batch = len(case.batch_shape)
    return torch.cat(
        [
            full.reshape(-1, *full.shape[batch:])[row][
                tuple(slice(n) for n in block.shape)
            ].flatten()
            for full, block in zip(restored, small, strict=True)
        ]
    )


@holds("edges", is_listed, lean=True)
def a_masked_part_has_no_mass_and_no_gradient(omega: Omega, case: StructureCase) -> None:
    """-inf on a part: if the target does not use it the loss is finite, else infinite."""
    n = case.problem.n_unary
    target, members = case.targets(4)
    every = case.members()[0]
    unused = [p for p in range(n) if members[0, p] == 0 and every[:, p].any()]
    used = [p for p in range(n) if members[0, p] > 0 and not every[:, p].all()]
    for part, hit in [(p, False) for p in unused[:2]] + [(p, True) for p in used[:1]]:
        scores = rebuild(case.scores, [x.clone() for x in blocks(case.scores)])
        blocks(scores)[0].reshape(-1)[part] = -math.inf
        leaves = rebuild(scores, [x.requires_grad_() for x in blocks(scores)])
        loss = omega.loss(leaves, target, **case.sizes)
        first = float(loss.detach().reshape(-1)[0])
        wanted = "an infinite" if hit else "a finite"
        expect(
            (first == math.inf) == hit,
            f"expected {wanted} loss when part {part} is masked, but got {first}",
        )
        expect(loss.reshape(-1)[1:].isfinite(), "expected finite losses of the other instances")
        grads = torch.autograd.grad(loss.sum(), blocks(leaves))
        expect(
            all(bool(grad.isfinite().all()) for grad in grads),
            f"expected finite gradients when part {part} is masked, but some are not",
        )
        got = float(grads[0].reshape(-1)[part])
        expect(got == (-1 if hit else 0), f"expected no share of part {part}, but got {got}")
        mass = float(blocks(omega.predict(leaves, **case.sizes))[0].detach().reshape(-1)[part])
        expect(mass == 0, f"expected a mean of exactly 0 where part {part} is masked; got {mass}")


@holds("edges", lean=True)
def lower_precision_is_float64_rounded_once(omega: Omega, case: StructureCase) -> None:
    target, _ = case.targets(7)
    for dtype in (torch.float32, torch.bfloat16):
        rounded = rebuild(case.scores, [x.to(dtype) for x in blocks(case.scores)])
        exact = rebuild(rounded, [x.double() for x in blocks(rounded)])
        for low, high in zip(
            blocks(omega.predict(rounded, **case.sizes)),
            blocks(omega.predict(exact, **case.sizes)),
            strict=True,
        ):
            same(low, high.to(dtype), "the mean")
        value = omega.conjugate(exact, **case.sizes).to(dtype)
        same(omega.conjugate(rounded, **case.sizes), value, "the conjugate")
        loss = omega.loss(exact, target, **case.sizes).to(dtype)
        leaf = rebuild(rounded, [x.clone().requires_grad_() for x in blocks(rounded)])
        low = omega.loss(leaf, target, **case.sizes)
        same(low, loss, "the loss")
        for grad in torch.autograd.grad(low.sum(), blocks(leaf)):
            expect(grad.dtype == dtype, f"expected gradients of {dtype}, but got {grad.dtype}")


def has_a_clear_best(omega: Omega, case: StructureCase) -> bool:
    if not case.can_be_listed:
        return False
    for members, row in zip(case.members(), case.problem.scores, strict=True):
        values = scores_of(members, row.detach()).sort(descending=True).values
        if len(values) > 1 and float(values[0] - values[1]) < 2e-3:
            return False
    return True


@holds("edges", has_a_clear_best, lean=True)
def large_scores_give_the_best(omega: Omega, case: StructureCase) -> None:
    large = rebuild(case.scores, [1e4 * x for x in blocks(case.scores)])
    best = MAP(case.structure).predict(case.scores, **case.sizes)
    for mean, wanted in zip(blocks(omega.predict(large, **case.sizes)), blocks(best), strict=True):
        close(mean, wanted, 1e-12, "the mean of 10 000 times the scores")


def can_be_zero(omega: Omega, case: StructureCase) -> bool:
    return not is_smooth(omega)


@holds("edges", can_be_zero, lean=True)
def the_loss_is_zero_exactly_where_the_prediction_is_right(
    omega: Omega, case: StructureCase
) -> None:
    target, members = case.targets(8)
    zeros = [torch.zeros_like(x) for x in blocks(case.scores)]
    signs = 2 * members[:, : case.problem.n_unary] - 1
    for lead in (0.0, 0.05, 0.3, 1.0, 4.0, 50.0):
        unary = lead * signs.reshape(zeros[0].shape)
        scores = rebuild(case.scores, [unary, *zeros[1:]])
        loss = omega.loss(scores, target, **case.sizes).reshape(-1)
        # The forbidden transitions of a case are allowed here, so the mean may use them.
        right = (case.flat(omega.predict(scores, **case.sizes)) == members).all(1)
        if not isinstance(omega, MAP):  # whose value is also 0 at ties
            expect(
                (loss == 0) == right,
                f"expected a loss of 0 exactly at right predictions for a lead of {lead}, but got "
                f"{loss.tolist()} where they are {right.tolist()}",
            )
        if lead == 50:
            expect(right, "expected the right prediction at a lead of 50, but got others")
            expect(loss == 0, f"expected losses of 0 at a lead of 50, but got {loss.tolist()}")


@holds("edges", lambda o, case: can_be_zero(o, case) and has_a_clear_best(o, case), lean=True)
def the_loss_of_the_prediction_is_zero(omega: Omega, case: StructureCase) -> None:
    """Exactly, although sums in another order have other rounding errors."""
    scores = rebuild(case.scores, [1e4 * x for x in blocks(case.scores)])
    members = case.flat(omega.predict(scores, **case.sizes))
    close(members, members.round(), 1e-9, "a member for large scores, with counts of")
    leaves = rebuild(scores, [x.clone().requires_grad_() for x in blocks(scores)])
    loss = omega.loss(leaves, case.natural(list(members.round())), **case.sizes)
    same(loss, torch.zeros_like(loss), "a loss of")
    for grad in torch.autograd.grad(loss.sum(), blocks(leaves)):
        close(grad, torch.zeros_like(grad), 1e-9, "a gradient of")


def can_be_reshaped(omega: Omega, case: StructureCase) -> bool:
    return len(case.batch_shape) == 1 and isinstance(case.scores, Tensor)


@holds("edges", can_be_reshaped, lean=True)
def batches_may_be_empty_or_have_more_axes(omega: Omega, case: StructureCase) -> None:
    first = case.scores
    target, _ = case.targets(9)
    mean, loss = omega.predict(first, **case.sizes), omega.loss(first, target, **case.sizes)
    more = {k: None if x is None else x.unsqueeze(1) for k, x in case.sizes.items()}
    same(omega.predict(first.unsqueeze(1), **more), mean.unsqueeze(1), "the mean")
    again = omega.loss(first.unsqueeze(1), target.unsqueeze(1), **more)
    same(again, loss.unsqueeze(1), "the loss")
    none = {k: None if x is None else x[:0] for k, x in case.sizes.items()}
    leaf = first[:0].clone().requires_grad_()
    empty = omega.predict(leaf, **none)
    same(empty, leaf, "the mean of nothing")
    same(omega.conjugate(leaf, **none), leaf.new_zeros(0), "the conjugate of nothing")
    total = omega.loss(leaf, target[:0], **none, cost=1.0).sum() + empty.sum()
    same(total, torch.zeros_like(total), "the sum of no losses")
    same(torch.autograd.grad(total, leaf)[0], leaf, "the gradient of nothing")


@holds("edges", lean=True)
def modes_copies_and_memory_do_not_matter(omega: Omega, case: StructureCase) -> None:
    target, _ = case.targets(11)
    mean = blocks(omega.predict(case.scores, **case.sizes))
    loss = omega.loss(case.scores, target, **case.sizes)

    def same_as(other: Omega, scores: object, what: str) -> None:
        again = blocks(other.predict(scores, **case.sizes))
        for got, wanted in zip(again, mean, strict=True):
            same(got, wanted, f"the mean {what}")
            expect(not got.requires_grad, f"expected no graph {what}, but there is one")
        same(other.loss(scores, target, **case.sizes), loss, f"the loss {what}")

    same_as(omega, case.scores, "of the same call again")
    same_as(copy.deepcopy(omega), case.scores, "of a copy")
    if type(case.structure).__module__.startswith("fenchel."):
        same_as(pickle.loads(pickle.dumps(omega)), case.scores, "after pickling")
    strided = [torch.stack([x, x], -1)[..., 0] for x in blocks(case.scores)]
    same_as(omega, rebuild(case.scores, strided), "of strided scores")
    with torch.no_grad():
        same_as(omega, case.leaves(), "under no_grad")
    with torch.inference_mode():
        same_as(omega, case.leaves(), "under inference_mode")
        made_there = rebuild(case.scores, [x.clone() for x in blocks(case.scores)])
    same_as(omega, made_there, "of scores made under inference_mode")
