from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_number
from fenchel._graphs import outside_graphs
from fenchel._warn import warn
from fenchel.regularizers._envelope import envelope
from fenchel.solvers.duality import dual_point
from fenchel.structures import Structure
from fenchel.structures.problem import Problem, refuse_unreadable, to_flat

_ROUNDINGS = 8  # roundings of a mean that may be left when its scores are found
_FAR = 100 * _ROUNDINGS  # roundings from which on nothing was found


class StructuredRegularizer(ABC):
    r"""A convex :math:`\Omega` on the convex hull of a structure's members.

    It brings what every :class:`fenchel.Regularizer` brings, with structures in the place of
    classes:

    ==================  ==========================================================================
    ``Ω(μ)``            the regularizer at a mean, by calling the object
    ``predict(θ)``      the mean structure :math:`\hat\mu = \arg\max_{\mu \in \operatorname{conv}
                        \mathcal Y} \langle \theta, \mu \rangle - \Omega(\mu)`, in the form of θ
    ``conjugate(θ)``    the value :math:`\Omega^*(\theta)` of that maximum; its gradient is the mean
    ``loss(θ, y)``      :math:`\Omega^*(\theta) + \Omega(y) - \langle \theta, y \rangle`; its
                        gradient is :math:`\hat\mu - y`
    ``bregman(y, p)``   :math:`\Omega(y) - \Omega(p) - \langle \nabla\Omega(p), y - p \rangle`
    ``margin``          the lead at which the loss is 0
    ==================  ==========================================================================

    Scores, lengths, masks and targets are those of the structure, whatever the regularizer.
    Everything is computed on the CPU in float64; tensors elsewhere are moved and returned. A
    value that is NaN or +inf is refused.
    """

    def __init__(self, structure: Structure) -> None:
        if not isinstance(structure, Structure):
            raise FenchelError(
                f"{type(self).__name__}: expected `structure` to be a fenchel.Structure, such as "
                f"DependencyTree(), but got {structure!r}."
            )
        self.structure = structure

    # ------------------------------------------------------------------ what a new Ω brings

    @property
    @abstractmethod
    def margin(self) -> float:
        """The lead of the right structure at which the loss is 0; ∞ if there is none."""

    @abstractmethod
    def mean(self, problem: Problem) -> Tensor:
        """The mean structure (instances, parts), differentiable in ``problem.scores``."""

    @abstractmethod
    def maximum(self, problem: Problem) -> Tensor:
        """The conjugate (instances), differentiable in ``problem.scores``."""

    def against(self, problem: Problem, parts: Tensor) -> Tensor:
        """The loss (instances) of members, differentiable: here for an Ω that is 0 on all."""
        return self.maximum(problem) - problem.score(parts)

    def omega_at(self, problem: Problem) -> Tensor:
        """Ω (instances) at means in the place of scores, differentiable: here by its conjugate.

        Some structures have ``-inf`` where a part may never be used: :func:`means_of` takes it out.
        """
        value, gradient = self._dual(problem)
        return envelope(value, problem.scores, gradient)

    def gradient_at(self, problem: Problem) -> Tensor:
        """∇Ω (instances, parts) at means in the place of scores, without a graph."""
        return self._dual(problem)[1]

    # ------------------------------------------------------------------ what users call

    @outside_graphs
    def __call__(self, means: Any, *, lengths: Tensor | None = None) -> Tensor:
        """Ω(μ), one number for each instance, for means of the structure (which is not checked).

        Args:
            means: in the form that ``predict`` gives; a structure as 0s and 1s is one too.
            lengths: sizes of the instances, if they differ.
        """
        problem = self.structure.problem(self._named(), means, lengths, None)
        return problem.values(self.omega_at(problem))

    @outside_graphs
    def bregman(self, y: Any, p: Any, *, lengths: Tensor | None = None) -> Tensor:
        r"""The Bregman divergence :math:`\Omega(y) - \Omega(p) - \langle \nabla\Omega(p), y - p
        \rangle` of each instance: the loss at a dual pair :math:`\theta = \nabla\Omega(p)`.

        For :class:`Marginals` it is γ times the Kullback-Leibler divergence of the distribution of
        ``p`` from that of ``y``.

        Args:
            y: means, in the form that ``predict`` gives.
            p: other means.
            lengths: sizes of the instances, if they differ.
        """
        name = self._named("bregman")
        one = self.structure.problem(name, y, lengths, None)
        other = self.structure.problem(name, p, lengths, None)
        if one.scores.shape != other.scores.shape or one.batch_shape != other.batch_shape:
            raise FenchelError(f"{name}: expected `y` and `p` of one form, but they differ.")
        apart = means_of(one) - means_of(other)
        slope = self.gradient_at(other)
        # A part that neither uses says nothing, even at -inf.
        linear = torch.where(apart == 0, 0.0, slope * apart).sum(1)
        value = self.omega_at(one) - self.omega_at(other) - linear
        return one.values(torch.where(value < 0, value - value.detach(), value))

    @outside_graphs
    def predict(
        self, scores: Any, *, lengths: Tensor | None = None, mask: Tensor | None = None
    ) -> Any:
        """The mean structure, in the form of ``scores``.

        Args:
            scores: the parts' scores, in the structure's form; ``-inf`` is a mask.
            lengths: sizes of the instances, if they differ; means of padding are 0.
            mask: boolean, True where a part may be used.
        """
        problem = self.structure.problem(self._named("predict"), scores, lengths, mask)
        return problem.means(self.mean(problem))

    @outside_graphs
    def conjugate(
        self, scores: Any, *, lengths: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The value of the regularized maximum, one for each instance of the batch.

        Args:
            scores: the parts' scores, in the structure's form; ``-inf`` is a mask.
            lengths: sizes of the instances, if they differ.
            mask: boolean, True where a part may be used.
        """
        problem = self.structure.problem(self._named("conjugate"), scores, lengths, mask)
        return problem.values(self.maximum(problem))

    @outside_graphs
    def loss(
        self,
        scores: Any,
        target: Any,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
        cost: float | Tensor | None = None,
    ) -> Tensor:
        r"""The Fenchel-Young loss of each instance of the batch.

        Args:
            scores: the parts' scores, in the structure's form; ``-inf`` is a mask: on a part that
                the target does not use it changes nothing, on one that it uses the loss is ``inf``.
            target: structures in their natural form: tags, heads, columns, a path. They are
                checked.
            lengths: sizes of the instances, if they differ.
            mask: boolean, True where a part may be used.
            cost: makes the loss cost-augmented, :math:`L_\Omega(\theta + c; y)`: a number is what
                every part costs that the target does not use (Hamming); a tensor gives a cost for
                each unary part, in the shape of the unary scores.
        """
        name = self._named("loss")
        problem = self.structure.problem(name, scores, lengths, mask)
        if isinstance(target, Tensor):
            refuse_unreadable(target)
        parts = self.structure.target_parts(name, problem, target)
        return problem.values(self._loss(name, problem, parts, cost))

    # ------------------------------------------------------------------ the same for all

    def _loss(self, name: str, problem: Problem, parts: Tensor, cost: Any) -> Tensor:
        value = self.against(self._with_cost(name, problem, parts, cost), parts)
        # Rounding may give -1e-16: then the value is 0, and the gradient what it was.
        return torch.where(value < 0, value - value.detach(), value)

    def _with_cost(self, name: str, problem: Problem, parts: Tensor, cost: Any) -> Problem:
        """The problem with what each unary part costs, given the target, added to its score."""
        if cost is None:
            return problem
        n = problem.n_unary
        y = problem.indicator(parts)
        if isinstance(cost, Tensor):
            shape = self.structure.unary(problem.means(y)).shape
            if not cost.is_floating_point() or cost.shape != shape:
                raise FenchelError(
                    f"{name}: expected `cost` to be a number, or a floating tensor of shape "
                    f"{tuple(shape)}, that of the unary scores, but got {cost.dtype} of shape "
                    f"{tuple(cost.shape)}."
                )
            added = to_flat(cost).reshape(-1, n)
            finite = bool(added.isfinite().all())
        else:
            number = check_number(name, "cost", cost, 0.0, "", "a number or a torch.Tensor")
            finite = number < math.inf
            added = number * (1 - y[:, :n]).clamp(min=0)
        if not finite:
            raise FenchelError(f"{name}: expected finite numbers in `cost`, but got others.")
        rest = problem.scores.shape[1] - n
        return replace(problem, scores=problem.scores + torch.nn.functional.pad(added, (0, rest)))

    def _dual(self, problem: Problem) -> tuple[Tensor, Tensor]:
        """Ω and its gradient at the means of a problem, without a graph."""
        means = means_of(problem).detach()
        level = torch.zeros_like(means).masked_fill(problem.scores == -math.inf, -math.inf)
        start = level
        if (
            self.margin == math.inf
        ):  # then a mean of 0 needs a score of -inf; else a low one will do
            used = self._usable(replace(problem, scores=level))
            start = torch.where(used & (means <= 0), -math.inf, level)
        if means.shape[0] == 0:
            return means.new_zeros(0), start

        def conjugate(scores: Tensor) -> tuple[Tensor, Tensor]:
            asked = replace(problem, scores=scores)
            return self.maximum(asked), self.mean(asked)

        # Rounded means are off the hull, where no scores can follow.
        eps = torch.finfo(problem.dtype).eps
        found = dual_point(conjugate, means, start, tol=_ROUNDINGS * eps)
        worst = float(found.residual.amax())
        if worst > _FAR * eps:
            warn(
                f"{self._named()}: no scores have these means, as far as {found.iterations} steps "
                f"can tell (the nearest are off by {worst:.1e}); are they means of "
                f"{self.structure!r}?"
            )
        return found.value, found.scores

    def _usable(self, problem: Problem) -> Tensor:
        """Which parts (instances, parts) some member has."""
        with torch.no_grad():
            return self.structure.smoothed_argmax(problem, "entropy", 1.0) > 0

    def _named(self, method: str = "") -> str:
        return f"{type(self).__name__}.{method}".rstrip(".")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.structure!r})"


def means_of(problem: Problem) -> Tensor:
    """The means (instances, parts) of a problem that was made of means."""
    return torch.where(problem.scores == -math.inf, 0.0, problem.scores)


def inner(scores: Tensor, counts: Tensor) -> Tensor:
    """The score (instances) of means or members; a part without mass says nothing, even -inf."""
    return torch.where(counts == 0, 0.0, scores * counts).sum(1)
