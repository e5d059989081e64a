from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_number
from fenchel._graphs import outside_graphs
from fenchel.structures import Structure
from fenchel.structures.problem import Problem, refuse_unreadable, to_flat


class StructuredRegularizer(ABC):
    r"""A convex :math:`\Omega` on the convex hull of a structure's members.

    It brings what every :class:`fenchel.Regularizer` brings, with structures in the place of
    classes:

    ==================  ==========================================================================
    ``predict(θ)``      the mean structure :math:`\hat\mu = \arg\max_{\mu \in \operatorname{conv}
                        \mathcal Y} \langle \theta, \mu \rangle - \Omega(\mu)`, in the form of θ
    ``conjugate(θ)``    the value :math:`\Omega^*(\theta)` of that maximum; its gradient is the mean
    ``loss(θ, y)``      :math:`\Omega^*(\theta) + \Omega(y) - \langle \theta, y \rangle`; its
                        gradient is :math:`\hat\mu - y`
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

    # ------------------------------------------------------------------ what users call

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

    def _named(self, method: str = "") -> str:
        return f"{type(self).__name__}.{method}".rstrip(".")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.structure!r})"


def inner(scores: Tensor, counts: Tensor) -> Tensor:
    """The score (instances) of means or members; a part without mass says nothing, even -inf."""
    return torch.where(counts == 0, 0.0, scores * counts).sum(1)
