from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel.regularizers._structured import StructuredRegularizer, means_of
from fenchel.structures.problem import Problem


class MAP(StructuredRegularizer):
    r"""No regularization: the prediction is the best structure.

    .. math:: \Omega(\mu) = 0, \qquad \Omega^*(\theta) = \max_{y \in \mathcal Y} \langle \theta, y
        \rangle

    The loss is the structured perceptron's, with ``cost=1`` the structured hinge loss of a
    support vector machine. The gradient of ``predict`` is 0 wherever it exists, so a hidden layer
    learns nothing through it; ``conjugate`` and ``loss`` have the best structure as subgradient,
    and second derivatives of 0.

    Args:
        structure: what to choose from.

    Example:
        >>> MAP(fy.OneOf()).loss(torch.tensor([1.0, 3.0, 2.0]), torch.tensor(2))
        tensor(1.)
        >>> MAP(fy.OneOf()).loss(torch.tensor([1.0, 3.0, 2.0]), torch.tensor(2), cost=1.0)
        tensor(2.)
    """

    @property
    def margin(self) -> float:
        return 0.0

    def omega_at(self, problem: Problem) -> Tensor:
        return 0.0 * means_of(problem).sum(1)

    def gradient_at(self, problem: Problem) -> Tensor:
        return torch.zeros_like(problem.scores.detach())

    def mean(self, problem: Problem) -> Tensor:
        with torch.no_grad():
            return problem.indicator(self.structure.best_parts(problem, problem.scores))

    def maximum(self, problem: Problem) -> Tensor:
        with torch.no_grad():
            parts = self.structure.best_parts(problem, problem.scores)
        value = problem.score(parts)
        return value + _Flat.apply(problem.scores, torch.zeros_like(value).detach())


class _Flat(torch.autograd.Function):
    """A value that does not move with the scores: derivatives of every order are there, and 0.

    Without it a second derivative, which is 0, would be an error: a gradient without a graph.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor) -> Tensor:
        ctx.save_for_backward(scores)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (scores,) = ctx.saved_tensors
        return _Flat.apply(scores, torch.zeros_like(scores).detach()), None
