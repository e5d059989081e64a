from __future__ import annotations

import math

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_positive
from fenchel.regularizers._structured import StructuredRegularizer
from fenchel.structures import Structure
from fenchel.structures.problem import Problem

#: A loss this small, relative to the scores, may be rounding.
_NEAR = 1e-11


class SmoothedDP(StructuredRegularizer):
    r"""A dynamic program with every maximum smoothed.

    The best score of a sequence or an alignment is found by a recursion of maxima. Here each of
    them is

    .. math:: \textstyle\max_\Omega(x) = \max_{p \in \triangle} \langle p, x \rangle - \gamma
        \Omega(p), \qquad \Omega(p) = \sum_i p_i \log p_i \ \text{or} \ \tfrac12 \|p\|^2

    so that the result is smooth. ``conjugate`` is the smoothed best score, ``predict`` its
    gradient: the expected structure of a random walk back through the recursion. With
    ``"entropy"`` that is :class:`Marginals`; with ``"l2"`` the walk has few ways to go, and the
    expected structure exact zeros. It is not :class:`SparseMAP`, which projects globally; it is
    cheaper. Both value and expectation are layers that train.

    Args:
        structure: one with a dynamic program, such as :class:`fenchel.Sequence` or
            :class:`fenchel.Alignment`: its ``smoothings`` have ``"l2"``.
        omega: ``"entropy"`` or ``"l2"``.
        gamma: how smooth, above 0; at 0 it would be :class:`MAP`.

    Example:
        >>> scores = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
        >>> SmoothedDP(fy.Alignment(), "l2").predict(scores)
        tensor([[1., 0.],
                [1., 1.]])

    References:
        Mensch & Blondel. Differentiable Dynamic Programming for Structured Prediction and
        Attention. ICML 2018.
    """

    def __init__(self, structure: Structure, omega: str = "entropy", gamma: float = 1.0) -> None:
        super().__init__(structure)
        if omega not in ("entropy", "l2"):
            raise FenchelError(
                f"SmoothedDP: expected `omega` to be 'entropy' or 'l2', but got {omega!r}."
            )
        if "l2" not in structure.smoothings:
            raise FenchelError(
                "SmoothedDP: expected a structure whose `smoothings` have 'l2', such as Sequence, "
                f"but got {structure!r}; SparseMAP needs only the argmax."
            )
        self.omega = omega
        self.gamma = check_positive(
            "SmoothedDP", "gamma", gamma, 1e300, "a finite number above 0 (0 would be MAP)"
        )

    @property
    def margin(self) -> float:
        """For ``"l2"`` a choice must lead by gamma, for ``"entropy"`` there is no such lead."""
        return self.gamma if self.omega == "l2" else math.inf

    def mean(self, problem: Problem) -> Tensor:
        return self.structure.smoothed_argmax(problem, self.omega, self.gamma)

    def maximum(self, problem: Problem) -> Tensor:
        return self.structure.smoothed_max(problem, self.omega, self.gamma)

    def against(self, problem: Problem, parts: Tensor) -> Tensor:
        score = problem.score(parts)
        value = self.maximum(problem) - score
        if self.omega == "entropy":
            return value
        # Ω is γ/2 at every choice that is certain.
        value = value + 0.5 * self.gamma * self.structure.n_choices(problem, parts).to(value.dtype)
        near = value.detach() <= _NEAR * (1 + score.detach().abs())
        if bool(near.any()):  # then it is 0 exactly if the prediction is right
            with torch.no_grad():
                right = (self.mean(problem) == problem.indicator(parts)).all(1)
            value = torch.where(near & right, value - value.detach(), value)
        return value

    def __repr__(self) -> str:
        return f"SmoothedDP({self.structure!r}, {self.omega!r}, gamma={self.gamma:g})"
