"""What holds for every Ω on every structure: values, losses, gradients, Ω itself, and edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fenchel.regularizers import MAP, Marginals, SmoothedDP, SparseMAP, StructuredRegularizer
from fenchel.testing._cases import StructureCase, blocks, rebuild, scores_of
from fenchel.testing._failure import Check, close, derivatives, expect, same
from fenchel.testing._truth import answers, omega_of, truth_of

Omega = StructuredRegularizer
Condition = Callable[[Omega, StructureCase], bool]


@dataclass(frozen=True)
class StructuredProperty:
    """A check of an Ω on a case, and where it makes sense.

    Attributes:
        check: raises where the property does not hold.
        applies: whether an Ω and a case have it.
        group: what it is about: ``"values"``, ``"omega"``, ``"gradients"`` or ``"edges"``.
        lean: whether one gamma tells as much as several.
    """

    check: Check
    applies: Condition
    group: str
    lean: bool


PROPERTIES: list[StructuredProperty] = []


def holds(
    group: str, when: Condition = lambda omega, case: True, *, lean: bool = False
) -> Callable[[Check], Check]:
    """Enter the decorated check into the list."""

    def enter(check: Check) -> Check:
        PROPERTIES.append(StructuredProperty(check, when, group, lean))
        return check

    return enter


def is_known(omega: Omega, case: StructureCase) -> bool:
    return truth_of(omega, case) is not None


def is_listed(omega: Omega, case: StructureCase) -> bool:
    return case.can_be_listed


def is_smooth(omega: Omega) -> bool:
    """Derivatives of every order: then no loss is ever exactly 0."""
    return omega.margin == math.inf


def product(counts: Tensor, scores: Tensor) -> Tensor:
    """<θ, μ> of each instance; a part without mass says nothing, even -inf."""
    return torch.where(counts != 0, counts * scores, 0.0).sum(1)


# ---------------------------------------------------------------------------------------- values


@holds("values", is_known)
def the_mean_and_the_value_are_those_of_all_members(omega: Omega, case: StructureCase) -> None:
    values, means = answers(omega, case)
    value = omega.conjugate(case.scores, **case.sizes)
    expect(
        value.shape == case.batch_shape and value.dtype == blocks(case.scores)[0].dtype,
        f"expected conjugates of shape {tuple(case.batch_shape)} in the dtype of the scores, but "
        f"got {tuple(value.shape)} of {value.dtype}",
    )
    close(value.reshape(-1), values, what="the conjugate")
    close(case.flat(omega.predict(case.scores, **case.sizes)), means, what="the mean")


@holds("values")
def means_have_the_form_of_the_scores(omega: Omega, case: StructureCase) -> None:
    mean = omega.predict(case.scores, **case.sizes)
    batch = case.batch_shape
    for got, given in zip(blocks(mean), blocks(case.scores), strict=True):
        # What instances share has a mean for each of them.
        fits = got.shape[got.dim() - given.dim() :] == given.shape or got.dim() == given.dim()
        expect(
            fits and got.shape[: len(batch)] == batch,
            f"expected means for scores of shape {tuple(given.shape)}, but got {tuple(got.shape)}",
        )


@holds("values", is_known)
def the_loss_is_its_definition(omega: Omega, case: StructureCase) -> None:
    values, _ = answers(omega, case)
    for seed in range(3):
        target, members = case.targets(seed)
        loss = omega.loss(case.scores, target, **case.sizes)
        wanted = values + omega_of(omega, case, members) - product(members, case.problem.scores)
        close(loss, wanted.reshape(case.batch_shape), what="the loss")


@holds("values")
def the_loss_is_never_negative(omega: Omega, case: StructureCase) -> None:
    for seed in range(3):
        loss = omega.loss(case.scores, case.targets(seed)[0], **case.sizes)
        expect(loss >= 0, f"expected losses of at least 0, but got {float(loss.min())!r}")


@holds("values", is_known)
def a_cost_of_a_number_is_hamming(omega: Omega, case: StructureCase) -> None:
    target, members = case.targets(5)
    problem = case.problem
    added = torch.zeros_like(problem.scores)
    added[:, : problem.n_unary] = 0.7 * (1 - members[:, : problem.n_unary])
    values, _ = answers(omega, case, added)
    wanted = values + omega_of(omega, case, members) - product(members, problem.scores)
    loss = omega.loss(case.scores, target, **case.sizes, cost=0.7)
    close(loss.reshape(-1), wanted, what="the loss with a cost of 0.7")


@holds("values", is_known)
def a_cost_of_a_tensor_is_added_to_unary_scores(omega: Omega, case: StructureCase) -> None:
    target, members = case.targets(6)
    problem = case.problem
    unary = blocks(case.scores)[0]
    rng = torch.Generator().manual_seed(7)
    cost = torch.rand(unary.shape, generator=rng, dtype=torch.float64)
    added = torch.zeros_like(problem.scores)
    added[:, : problem.n_unary] = cost.reshape(-1, problem.n_unary)
    values, _ = answers(omega, case, added)
    wanted = values + omega_of(omega, case, members) - product(members, problem.scores + added)
    loss = omega.loss(case.scores, target, **case.sizes, cost=cost)
    close(loss.reshape(-1), wanted, what="the loss with costs")


@holds("values", lambda omega, case: isinstance(omega, MAP) and case.can_be_listed)
def the_best_is_a_member(omega: Omega, case: StructureCase) -> None:
    means = case.flat(omega.predict(case.scores, **case.sizes))
    for at, (mean, members) in enumerate(zip(means, case.members(), strict=True)):
        expect(
            (members == mean).all(1).any(),
            f"expected a member of instance {at}, but got one that `enumerate` does not list: "
            f"parts {mean.nonzero().flatten().tolist()}",
        )


@holds("values", lambda omega, case: isinstance(omega, SparseMAP) and case.can_be_listed)
def few_members_mix_to_the_mean(omega: SparseMAP, case: StructureCase) -> None:
    answer = omega.solve(case.scores, **case.sizes)
    mean = case.flat(omega.predict(case.scores, **case.sizes))
    close(case.flat(answer.means), mean, what="the mean of `solve`")
    batch = case.batch_shape
    for name in ("gap", "iterations", "sizes"):
        got = getattr(answer, name).shape
        expect(got == batch, f"expected `{name}` of shape {tuple(batch)}, but got {tuple(got)}")
    expect(
        answer.weights.shape[:-1] == answer.structures.shape[:-2] == batch,
        f"expected weights and structures for a batch of {tuple(batch)}, but got "
        f"{tuple(answer.weights.shape)} and {tuple(answer.structures.shape)}",
    )
    expect(answer.converged, "expected that all instances converge, but some did not")
    expect(answer.gap < 1e-8, f"expected a gap below 1e-8, but got {float(answer.gap.max())}")
    expect(answer.iterations >= 0, "expected iterations of at least 0, but got fewer")
    expect(answer.weights >= 0, "expected weights of at least 0, but got negative ones")
    most = answer.weights.shape[-1]
    weights = answer.weights.reshape(-1, most)
    close(weights.sum(1), torch.ones_like(mean[:, 0]), what="the sum of the weights")
    rows = [case.flat(answer.structure(i)) for i in range(most)]
    mixed = torch.stack([w.unsqueeze(1) * row for w, row in zip(weights.T, rows, strict=True)])
    close(mixed.sum(0), mean, what="the weighted mean of the structures")
    problem, members_of_all = case.problem, case.members()
    for at, members in enumerate(members_of_all):
        for i in (weights[at] > 0).nonzero().flatten():
            found = (members == rows[int(i)][at]).all(1).any()
            expect(found, f"expected members only, but structure {int(i)} of {at} is none")
        # Wolfe's gap, over all members: nothing does better along the slopes.
        n, slopes = problem.n_unary, problem.scores[at] / omega.gamma
        ahead = scores_of(members, slopes) - members[:, :n] @ mean[at, :n]
        here = scores_of(mean[at : at + 1], slopes) - mean[at, :n] @ mean[at, :n]
        gap = float((ahead.amax() - here).amax())
        expect(gap < 1e-9, f"expected Wolfe's gap below 1e-9 at instance {at}, but got {gap}")
    largest = max(len(x) for x in members_of_all)
    expect(
        most == int(answer.sizes.amax()) <= largest,
        f"expected at most {largest} structures, as many as there are, but got {most}",
    )


# ----------------------------------------------------------------------------------------- Ω itself


@holds("omega")
def omega_closes_the_fenchel_young_inequality(omega: Omega, case: StructureCase) -> None:
    value = omega.conjugate(case.scores, **case.sizes).reshape(-1)
    mean = omega.predict(case.scores, **case.sizes)
    found = omega(mean, lengths=case.lengths)
    wanted = product(case.flat(mean), case.problem.scores) - value
    close(found, wanted.reshape(case.batch_shape), 1e-11, "Ω at the prediction")


def is_cheap_anywhere(omega: Omega, case: StructureCase) -> bool:
    """Where Ω is found by its conjugate, means on the boundary have scores at infinity."""
    return not isinstance(omega, Marginals | SmoothedDP)


@holds("omega", is_cheap_anywhere)
def no_other_mean_does_better(omega: Omega, case: StructureCase) -> None:
    """Ω*(θ) + Ω(μ) ≥ <θ, μ> for every mean μ."""
    value = omega.conjugate(case.scores, **case.sizes).reshape(-1)
    for other in (MAP(case.structure), SparseMAP(case.structure, 2.0)):
        mean = other.predict(case.scores, **case.sizes)
        at = omega(mean, lengths=case.lengths).reshape(-1)
        gap = value + at - product(case.flat(mean), case.problem.scores)
        expect(
            gap > -1e-9,
            f"expected Ω*(θ) + Ω(μ) - <θ, μ> of at least 0 at the mean of {other!r}, but got "
            f"{float(gap.min())}",
        )


@holds("omega")
def omega_of_a_member_is_what_the_loss_adds(omega: Omega, case: StructureCase) -> None:
    """L(θ; y) = Ω*(θ) + Ω(y) - <θ, y>."""
    target, members = case.targets(3)
    wanted = omega.loss(case.scores, target, **case.sizes).reshape(-1)
    wanted = wanted - omega.conjugate(case.scores, **case.sizes).reshape(-1)
    wanted = wanted + product(members, case.problem.scores)
    y = case.problem.restore(members)
    close(omega(y, lengths=case.lengths).reshape(-1), wanted, 1e-9, "Ω of a member")


@holds("omega")
def the_bregman_divergence_at_a_dual_pair_is_the_loss(omega: Omega, case: StructureCase) -> None:
    lengths = case.lengths
    target, members = case.targets(4)
    p = omega.predict(case.scores, **case.sizes)
    divergence = omega.bregman(case.problem.restore(members), p, lengths=lengths)
    loss = omega.loss(case.scores, target, **case.sizes)
    expect(divergence >= 0, f"expected at least 0, but got {float(divergence.min())!r}")
    if not is_smooth(omega):  # Ω has many gradients at p, and the scores may be another one
        problem = case.structure.problem("check", p, lengths)
        loss = omega.loss(problem.restore(omega.gradient_at(problem)), target, lengths=lengths)
    close(divergence, loss, 1e-9, "the divergence")
    own = omega.bregman(p, p, lengths=lengths)
    close(own, torch.zeros_like(loss), 1e-12, "the divergence of a mean from itself")


@holds("omega", lambda omega, case: isinstance(omega, SparseMAP))
def omega_is_half_the_squared_norm_of_unary_means(omega: SparseMAP, case: StructureCase) -> None:
    mean = omega.predict(case.scores, **case.sizes)
    half = 0.5 * case.flat(mean)[:, : case.problem.n_unary].square().sum(1)
    half = half.reshape(case.batch_shape)
    close(omega(mean), omega.gamma * half, what="Ω of the mean")
    same(MAP(case.structure)(mean), 0 * half, "the Ω of MAP")


@holds("omega", lambda omega, case: isinstance(omega, Marginals) and case.can_be_listed)
def the_bregman_divergence_is_that_of_distributions(omega: Marginals, case: StructureCase) -> None:
    scores, gamma = case.problem.scores, omega.gamma
    other = torch.where(scores > -math.inf, scores.flip(0), -math.inf)
    at = [scores, torch.where(other == -math.inf, scores, other)]
    wanted = []
    for row, members in enumerate(case.members()):
        logs = [(scores_of(members, x[row]) / gamma).log_softmax(0) for x in at]
        wanted.append(gamma * (logs[0].exp() * (logs[0] - logs[1])).sum())
    y, p = (omega.predict(case.problem.restore(x), lengths=case.lengths) for x in at)
    found = omega.bregman(y, p, lengths=case.lengths).reshape(-1)
    close(found, torch.stack(wanted), 1e-9, "γ KL")


# ------------------------------------------------------------------------------------- gradients


def shared(means: Any, leaves: Any) -> list[Tensor]:
    """Means of each instance, summed where the instances share a score."""
    return [m.sum_to_size(x.shape) for m, x in zip(blocks(means), blocks(leaves), strict=True)]


@holds("gradients")
def the_gradient_of_the_value_is_the_mean(omega: Omega, case: StructureCase) -> None:
    leaves = case.leaves()
    value = omega.conjugate(leaves, **case.sizes)
    grads = torch.autograd.grad(value.sum(), blocks(leaves))
    means = shared(omega.predict(case.scores, **case.sizes), leaves)
    for grad, mean in zip(grads, means, strict=True):
        close(grad, mean, 1e-12, "the gradient")


@holds("gradients")
def the_gradient_of_the_loss_is_mean_minus_target(omega: Omega, case: StructureCase) -> None:
    leaves, problem = case.leaves(), case.problem
    target, members = case.targets(2)
    rng = torch.Generator().manual_seed(8)
    weights = torch.rand(case.batch_shape, generator=rng, dtype=torch.float64)
    loss = omega.loss(leaves, target, **case.sizes)
    grads = torch.autograd.grad((weights * loss).sum(), blocks(leaves))
    residual = case.flat(omega.predict(case.scores, **case.sizes)) - members
    residual = problem.restore(residual * weights.reshape(-1, 1))
    for grad, wanted in zip(grads, shared(residual, leaves), strict=True):
        close(grad, wanted, 1e-12, "the gradient")


def functions(omega: Omega, case: StructureCase) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """predict and loss of a case as functions of its blocks."""
    target, _ = case.targets(1)

    def predict(*leaves: Tensor) -> tuple[Tensor, ...]:
        return tuple(blocks(omega.predict(rebuild(case.scores, leaves), **case.sizes)))

    def loss(*leaves: Tensor) -> Tensor:
        return omega.loss(rebuild(case.scores, leaves), target, **case.sizes, cost=0.3)

    return predict, loss


def has_derivatives(omega: Omega, case: StructureCase) -> bool:
    return not isinstance(omega, MAP) and (
        not isinstance(omega, SmoothedDP) or omega.omega == "l2"  # else it is Marginals
    )


@holds("gradients", has_derivatives, lean=True)
def derivatives_are_those_of_finite_differences(omega: Omega, case: StructureCase) -> None:
    """Where Ω is not smooth the mean is piecewise, and the loss has the envelope's Hessian."""
    predict, loss = functions(omega, case)
    derivatives(predict, blocks(case.leaves()), 2 if is_smooth(omega) else 1)
    derivatives(loss, blocks(case.leaves()))


@holds("gradients", lambda omega, case: isinstance(omega, MAP))
def the_best_is_piecewise_constant(omega: Omega, case: StructureCase) -> None:
    leaves = case.leaves()
    for block in blocks(omega.predict(leaves, **case.sizes)):
        expect(not block.requires_grad, "expected a prediction without a graph, but it has one")
    inputs = blocks(leaves)
    value = omega.conjugate(leaves, **case.sizes).sum()
    first = torch.autograd.grad(value, inputs, create_graph=True)
    expect(any(bool((g != 0).any()) for g in first), "expected a gradient, but it is 0")
    pulled = [(g * (1 + torch.arange(g.numel()).reshape(g.shape))).sum() for g in first]
    second = torch.autograd.grad(torch.stack(pulled).sum(), inputs, create_graph=True)
    third = torch.autograd.grad(torch.stack([h.sum() for h in second]).sum(), inputs)
    for h in (*second, *third):
        same(h, torch.zeros_like(h), "a second and a third derivative of")
