"""What holds for every Ω on rows, and the check for any Ω, on rows or on structures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fenchel._checks import FenchelError
from fenchel.regularizers import Regularizer, StructuredRegularizer
from fenchel.testing._cases import Recursion, case_of
from fenchel.testing._failure import Check, close, derivatives, expect, run, same, sentence_of
from fenchel.testing._structures import check_structured

SIZES = (1, 2, 5, 40, 300)  # short rows have paths of their own in some kernels


@dataclass(frozen=True)
class FlatCase:
    """A regularizer, and what is known of it.

    Attributes:
        omega: what to check.
        simplex: whether its domain is the simplex.
        smooth: whether its map is differentiable almost everywhere and not constant.
        entropy: whether it is a negated entropy: 0 at vertices, least in the centre, symmetric.
        tolerance: how far a value may be off; more than rounding for a map found by iterations.
    """

    omega: Regularizer
    simplex: bool = True
    smooth: bool = True
    entropy: bool = False
    tolerance: float = 1e-12

    def __repr__(self) -> str:
        return repr(self.omega)


CHECKS: list[tuple[Check, Callable[[FlatCase], bool]]] = []


def holds(when: Callable[[FlatCase], bool] = lambda case: True) -> Callable[[Check], Check]:
    """Enter the decorated check into the list."""

    def enter(check: Check) -> Check:
        CHECKS.append((check, when))
        return check

    return enter


def seeded(seed: int = 20240217) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def randn(*shape: int, rng: torch.Generator, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=rng, dtype=torch.float64)


def distributions(rows: int, n: int, rng: torch.Generator, sparse: bool = True) -> Tensor:
    """Points of the simplex: in its interior, and, if ``sparse``, every other one on a face."""
    p = -torch.rand(rows, n, generator=rng, dtype=torch.float64).log()
    if sparse:
        cut = torch.rand(rows, n, generator=rng) < 0.5
        cut[::2] = False
        cut[:, 0] = False
        p = p.masked_fill(cut, 0.0)
    return p / p.sum(-1, keepdim=True)


def classes(n: int, count: int, rng: torch.Generator) -> Tensor:
    return torch.randint(0, n, (count,), generator=rng)


def vertices(target: Tensor, n: int) -> Tensor:
    return F.one_hot(target, n).double()


def at_most(value: Tensor, bound: Tensor, what: str) -> None:
    off = value > bound
    if bool(off.any()):
        at = tuple(off.nonzero()[0].tolist())
        expect(
            False,
            f"expected {what} of at most {float(bound[at]):.12g} at {list(at)}, but got "
            f"{float(value[at]):.12g}",
        )


# ---------------------------------------------------------------------------------------- values


@holds(lambda case: case.entropy)
def omega_is_zero_at_vertices_and_least_at_the_centre(case: FlatCase) -> None:
    corners = case.omega(torch.eye(5, dtype=torch.float64))
    same(corners, torch.zeros_like(corners), "Ω at a vertex")
    centre = case.omega(torch.full((5,), 0.2, dtype=torch.float64))
    other = case.omega(torch.tensor([0.3, 0.1, 0.2, 0.2, 0.2], dtype=torch.float64))
    at_most(centre, other, "Ω at the centre")
    at_most(centre, torch.zeros_like(centre), "Ω at the centre")


@holds()
def predictions_are_in_the_domain(case: FlatCase) -> None:
    rng = seeded()
    for n in SIZES:
        for scale in (0.3, 1.0, 4.0):
            p = case.omega.predict(randn(6, n, rng=rng, scale=scale))
            if case.simplex:
                expect(p >= 0, f"expected p of at least 0, but got {float(p.min())!r}")
                close(p.sum(-1), torch.ones_like(p[:, 0]), max(case.tolerance, 1e-12), "a sum of")


@holds()
def the_prediction_is_the_maximiser(case: FlatCase) -> None:
    rng = seeded()
    for n in SIZES:
        for scale in (0.3, 1.0, 4.0):
            scores = randn(6, n, rng=rng, scale=scale)
            p = case.omega.predict(scores)
            best = (scores * p).sum(-1) - case.omega(p)
            for _ in range(20):
                q = distributions(6, n, rng)
                # Near p, where it is easiest to do better, and far from it.
                for step in (1e-4, 0.03, 1.0):
                    other = (1 - step) * p + step * q
                    value = (scores * other).sum(-1) - case.omega(other)
                    bound = best + case.tolerance * (1 + best.abs())
                    at_most(value, bound, "<θ, q> - Ω(q) at another point")


@holds()
def the_conjugate_is_the_maximum_and_its_gradient_the_map(case: FlatCase) -> None:
    rng = seeded()
    for n in SIZES:
        scores = randn(5, n, rng=rng, scale=2.0).requires_grad_()
        value = case.omega.conjugate(scores)
        p = case.omega.predict(scores.detach())
        maximum = (p * scores.detach()).sum(-1) - case.omega(p)
        close(value, maximum, case.tolerance, "the conjugate")
        (gradient,) = torch.autograd.grad(value.sum(), scores)
        close(gradient, p, case.tolerance, "the gradient of the conjugate")


@holds()
def indices_and_one_hot_targets_agree(case: FlatCase) -> None:
    rng = seeded()
    scores = randn(6, 9, rng=rng, scale=2.0).requires_grad_()
    target = classes(9, 6, rng)
    losses = [case.omega.loss(scores, y) for y in (target, vertices(target, 9))]
    close(losses[0], losses[1], 1e-14, "the loss of indices")
    gradients = [torch.autograd.grad(loss.sum(), scores)[0] for loss in losses]
    close(gradients[0], gradients[1], 1e-14, "the gradient of indices")


# ------------------------------------------------------------------------------------ properties


@holds()
def the_loss_is_never_negative_and_zero_at_the_prediction(case: FlatCase) -> None:
    rng = seeded()
    for dtype in (torch.float64, torch.float32):
        for scale in (1e-3, 1.0, 30.0):
            scores = randn(64, 6, rng=rng, scale=scale).to(dtype)
            loss = case.omega.loss(scores, classes(6, 64, rng))
            expect(loss >= 0, f"expected losses of at least 0, but got {float(loss.min())!r}")
            p = case.omega.predict(scores)
            if case.simplex and dtype == torch.float64:  # in float32 it need not sum to 1
                own = case.omega.loss(scores, p)
                same(own, torch.zeros_like(own), "the loss of the prediction")


@holds(lambda case: case.simplex and case.omega.margin > 0)
def the_loss_is_positive_off_the_prediction(case: FlatCase) -> None:
    rng = seeded()
    scores = randn(30, 5, rng=rng)
    p = case.omega.predict(scores)
    loss = case.omega.loss(scores, 0.99 * p + 0.01 * distributions(30, 5, rng, sparse=False))
    good = loss > 0 if case.smooth else loss >= 0
    expect(good, f"expected positive losses off the prediction, but got {float(loss.min())!r}")


@holds()
def the_loss_is_convex(case: FlatCase) -> None:
    rng = seeded()
    a, b = (randn(200, 5, rng=rng, scale=3.0) for _ in range(2))
    target = classes(5, 200, rng)
    for share in (0.1, 0.5):
        middle = case.omega.loss(share * a + (1 - share) * b, target)
        chord = share * case.omega.loss(a, target) + (1 - share) * case.omega.loss(b, target)
        at_most(middle, chord + 0.1 * case.tolerance * (1 + chord), "a loss below a chord")


@holds()
def the_gradient_of_the_loss_is_prediction_minus_target(case: FlatCase) -> None:
    rng = seeded()
    for n in (3, 200):
        scores = randn(7, n, rng=rng, scale=2.0).requires_grad_()
        p = case.omega.predict(scores.detach())
        target = classes(n, 7, rng)
        for y, given in ((vertices(target, n), target), (distributions(7, n, rng),) * 2):
            (gradient,) = torch.autograd.grad(case.omega.loss(scores, given).sum(), scores)
            close(gradient, p - y, 1e-14, "the gradient")


@holds(lambda case: case.smooth)
def the_hessian_of_the_loss_is_the_jacobian_of_the_map(case: FlatCase) -> None:
    target, largest = torch.tensor(2), 0.0
    for scale in (0.03, 0.3, 1.0):  # a few scores may be fused, or all mass be on one
        scores = randn(4, rng=seeded(), scale=scale)
        hessian = torch.autograd.functional.hessian(lambda s: case.omega.loss(s, target), scores)
        jacobian = torch.autograd.functional.jacobian(case.omega.predict, scores)
        close(hessian, jacobian, 1e-10, "the Hessian")
        largest = max(largest, float(hessian.abs().max()))
    expect(largest > 1e-3, f"expected a Hessian, but its largest entry is {largest}")


@holds(lambda case: case.smooth)
def derivatives_are_those_of_finite_differences(case: FlatCase) -> None:
    rng = seeded()
    scores = randn(3, 4, rng=rng, scale=0.2).requires_grad_()
    for target in (classes(4, 3, rng), distributions(3, 4, rng)):
        derivatives(lambda s: case.omega.loss(s, target), [scores], fast=False)  # noqa: B023
    derivatives(case.omega.conjugate, [scores], fast=False)


@holds()
def gamma_times_omega_is_a_temperature(case: FlatCase) -> None:
    rng = seeded()
    for gamma in (0.25, 3.0):
        scores, target = randn(6, 5, rng=rng, scale=2.0), classes(5, 6, rng)
        omega, scaled, off = case.omega, gamma * case.omega, case.tolerance
        close(scaled.predict(scores), omega.predict(scores / gamma), off, "the map")
        close(
            scaled.loss(scores, target), gamma * omega.loss(scores / gamma, target), off, "a loss"
        )
        close(scaled.conjugate(scores), gamma * omega.conjugate(scores / gamma), off, "a value")
        p = distributions(6, 5, rng)
        close(scaled(p), gamma * omega(p), off, "Ω")
        expect(
            scaled.margin == gamma * omega.margin,
            f"expected a margin of {gamma * omega.margin}, but got {scaled.margin}",
        )


@holds(lambda case: case.entropy)
def the_order_of_scores_is_kept(case: FlatCase) -> None:
    p = case.omega.predict(randn(50, 6, rng=seeded()).sort(-1).values)
    expect(
        p.diff(dim=-1) >= 0, "expected probabilities in the order of the scores, but they are not"
    )


@holds(lambda case: case.entropy or not case.simplex)
def the_loss_is_zero_from_the_margin_on(case: FlatCase) -> None:
    margin = case.omega.margin
    if margin == math.inf:
        scores = torch.zeros(4, dtype=torch.float64)
        scores[1] = 10.0
        loss = case.omega.loss(scores, torch.tensor(1))
        expect(loss > 0, "expected a positive loss at every lead, but got 0")
        return
    for below in (0.0, 0.5, 3.0):
        scores = torch.tensor([0.0, margin * (1 + 1e-15), -below, 0.0], dtype=torch.float64)
        scores.requires_grad_()
        loss = case.omega.loss(scores, torch.tensor(1))
        got = float(loss.detach())
        expect(got == 0, f"expected no loss at the margin {margin}, but got {got!r}")
        if margin > 0:  # at a margin of 0 there is a tie, and no gradient but subgradients
            (gradient,) = torch.autograd.grad(loss, scores)
            same(gradient, torch.zeros_like(gradient), "the gradient at the margin")
        # Close to a margin of 1000 a loss is positive, but no floating-point number.
        lead = min(margin - 1e-3, 10.0)
        just_below = torch.tensor([0.0, lead, -below, 0.0], dtype=torch.float64)
        near = case.omega.loss(just_below, torch.tensor(1))
        expect(near > 0, f"expected a positive loss at a lead of {lead}, but got {float(near)!r}")


@holds(lambda case: case.simplex and case.omega.margin > 0)
def the_bregman_divergence_at_a_dual_pair_is_the_loss(case: FlatCase) -> None:
    rng = seeded()
    p, y = distributions(10, 5, rng, sparse=False), distributions(10, 5, rng)
    p = 0.5 * p + 0.1  # away from 0, where the gradient may be so flat that it says little of p
    dual = case.omega.gradient_rows(p)
    if case.smooth:
        close(case.omega.predict(dual), p, max(1e-9, case.tolerance), "the map of ∇Ω(p)")
    loss = case.omega.loss(dual, y)
    close(case.omega.bregman(y, p), loss, max(1e-11, 10 * case.tolerance), "the divergence")
    own = case.omega.bregman(p, p)
    same(own, torch.zeros_like(own), "the divergence of p from itself")


# -------------------------------------------------------------------------- masks, layout, dtypes


@holds(lambda case: case.simplex)
def a_masked_wrong_class_is_absent(case: FlatCase) -> None:
    scores = randn(5, 6, rng=seeded())
    target = torch.tensor([0, 1, 2, 0, 1])
    longer = F.pad(scores, (0, 2), value=-math.inf).requires_grad_()
    loss = case.omega.loss(longer, target)
    off = 0.1 * case.tolerance
    close(loss, case.omega.loss(scores, target), off, "the loss")
    (gradient,) = torch.autograd.grad(loss.sum(), longer)
    same(gradient[:, 6:], torch.zeros_like(gradient[:, 6:]), "the gradient of a masked class")
    expect(gradient.isfinite(), "expected finite gradients, but some are not")
    close(case.omega.conjugate(longer), case.omega.conjugate(scores), off, "the conjugate")
    mask = longer.detach() > -math.inf
    filled = case.omega.predict(longer.detach().nan_to_num(neginf=7.0), mask=mask)
    same(filled, case.omega.predict(longer.detach()), "the map with `mask`")


@holds(lambda case: case.simplex)
def a_masked_gold_class_costs_infinitely_much(case: FlatCase) -> None:
    scores = torch.tensor([[0.0, -math.inf, 1.0], [-math.inf] * 3], dtype=torch.float64)
    scores.requires_grad_()
    loss = case.omega.loss(scores, torch.tensor([1, 1]))
    expect(loss == math.inf, f"expected infinite losses, but got {loss.tolist()}")
    (gradient,) = torch.autograd.grad(loss.sum(), scores)
    expect(gradient.isfinite(), "expected finite gradients, but some are not")
    expect(
        gradient[:, 1] == -1, f"expected -1 at the gold class, but got {gradient[:, 1].tolist()}"
    )
    value = float(case.omega.conjugate(scores)[1].detach())
    expect(value == -math.inf, f"expected -inf where all is masked, but got {value}")


@holds()
def a_bad_row_is_nan_alone(case: FlatCase) -> None:
    scores = torch.tensor([[0.0, math.nan, 1.0], [0.0, 1.0, 2.0]])
    loss = case.omega.loss(scores, torch.tensor([0, 0]))
    expect(loss[0].isnan(), f"expected NaN for a row with NaN, but got {float(loss[0])}")
    same(loss[1], case.omega.loss(scores[1], torch.tensor(0)), "the loss beside a row with NaN")


@holds()
def any_axis_can_hold_the_classes(case: FlatCase) -> None:
    rng, omega = seeded(), case.omega
    for dim in (0, 1, -1):
        scores = randn(3, 4, 5, rng=rng)
        shape = list(scores.shape)
        n = shape.pop(dim)
        target = torch.randint(0, n, shape, generator=rng)
        moved = scores.movedim(dim, -1)
        same(omega.loss(scores, target, dim), omega.loss(moved, target), f"the loss at dim {dim}")
        same(omega.conjugate(scores, dim), omega.conjugate(moved), f"a value at dim {dim}")
        p = omega.predict(scores, dim)
        same(p.movedim(dim, -1), omega.predict(moved), f"the map at dim {dim}")
        same(omega(p, dim), omega(p.movedim(dim, -1)), f"Ω at dim {dim}")
    soft = omega.loss(scores, distributions(12, 5, rng).reshape(3, 4, 5), -1)
    expect(soft.shape == (3, 4), f"expected one loss per row, but got shape {tuple(soft.shape)}")


@holds()
def half_precision_computes_in_float32(case: FlatCase) -> None:
    rng = seeded()
    for dtype in (torch.float16, torch.bfloat16):
        scores, target = randn(5, 6, rng=rng).to(dtype), classes(6, 5, rng)
        wanted = case.omega.loss(scores.float(), target).to(dtype)
        same(case.omega.loss(scores, target), wanted, "the loss")
        for call in (case.omega.predict, case.omega.conjugate):
            same(call(scores), call(scores.float()).to(dtype), f"`{call.__name__}`")


# ---------------------------------------------------------------------------------------- for users


def check_regularizer(
    omega: Regularizer | StructuredRegularizer,
    scores: Any = None,
    *,
    lengths: Tensor | None = None,
    mask: Tensor | None = None,
    simplex: bool = True,
    smooth: bool = True,
    entropy: bool = False,
    tolerance: float = 1e-12,
    l2_max: Recursion | None = None,
) -> list[str]:
    r"""Hold an :math:`\Omega` to all that the library's own are held to.

    The map, the value, the loss, the margin and the Bregman divergence must belong together:
    the map is the maximiser and the gradient of the value, the loss is at least 0 and 0 at the
    prediction, its gradient is prediction minus target and its Hessian the Jacobian of the map.
    Masks, bad rows, axes, dtypes and temperatures are checked as well.

    Args:
        omega: a :class:`fenchel.Regularizer`, which is given rows of its own, or a
            :class:`fenchel.StructuredRegularizer`.
        scores: for an Ω on a structure, a batch of small instances, float64; else leave it out.
        lengths: sizes of these instances, if they differ.
        mask: boolean, True where a part of them may be used.
        simplex: on rows: whether the domain is the simplex.
        smooth: on rows: whether the map has derivatives almost everywhere.
        entropy: on rows: whether Ω is a negated entropy: 0 at vertices, symmetric, least in the
            centre. Then the order of scores and the margin are checked too.
        tolerance: on rows: how far values may be off. More than rounding only if the map comes
            from iterations.
        l2_max: as in :func:`check_structure`.

    Returns:
        What was checked, in words.

    Raises:
        CheckFailed: an AssertionError that names the property, what was expected and what came.

    Example:
        >>> from fenchel.testing import check_regularizer
        >>> check_regularizer(fy.Tsallis(1.5), entropy=True)[2]
        'Tsallis(alpha=1.5): the prediction is the maximiser'
    """
    if isinstance(omega, StructuredRegularizer):
        if scores is None:
            raise FenchelError(
                f"check_regularizer: expected `scores` for {omega!r}, a batch of small instances "
                f"of {omega.structure!r}, but got None."
            )
        case = case_of(omega.structure, scores, lengths, mask, l2_max)
        return check_structured(omega, case)
    if not isinstance(omega, Regularizer):
        raise FenchelError(
            "check_regularizer: expected a fenchel.Regularizer or fenchel.StructuredRegularizer, "
            f"but got {type(omega).__name__}."
        )
    flat = FlatCase(omega, simplex, smooth, entropy, tolerance)
    done = []
    for check, applies in CHECKS:
        if applies(flat):
            run(repr(omega), check, flat)
            done.append(f"{omega!r}: {sentence_of(check)}")
    return done
