from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_int, check_positive
from fenchel._graphs import outside_graphs
from fenchel.regularizers._structured import StructuredRegularizer
from fenchel.structures import Structure
from fenchel.structures.problem import Problem


class Marginals(StructuredRegularizer):
    r"""The Gibbs distribution over structures: a conditional random field.

    .. math:: p(y) \propto \exp(\langle \theta, y \rangle / \gamma), \qquad
        \Omega(\mu) = -\gamma H(p), \qquad
        \Omega^*(\theta) = \gamma \log \sum_{y \in \mathcal Y} e^{\langle \theta, y \rangle/\gamma}

    ``predict`` gives the marginal probability of every part, ``loss`` the negative
    log-likelihood times γ. All derivatives are exact, of every order.

    Args:
        structure: one with a tractable log-partition function; for others (assignments) the error
            says what to use.
        gamma: γ, above 0.

    Example:
        >>> Marginals(fy.KSubsets(2)).predict(torch.zeros(4))
        tensor([0.5000, 0.5000, 0.5000, 0.5000])
        >>> round(float(Marginals(fy.KSubsets(2)).conjugate(torch.zeros(4)).exp()), 4)
        6.0
    """

    def __init__(self, structure: Structure, gamma: float = 1.0) -> None:
        super().__init__(structure)
        self.gamma = check_positive("Marginals", "gamma", gamma, 1e300, "a finite number above 0")
        if "entropy" not in structure.smoothings:
            raise FenchelError(f"Marginals: {structure.no_smoothing('entropy')}")

    @property
    def margin(self) -> float:
        return math.inf

    @outside_graphs
    def entropy(
        self, scores: Any, *, lengths: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The entropy of the distribution over structures, one for each instance, differentiable.

        Args:
            scores: the parts' scores, in the structure's form; ``-inf`` is a mask.
            lengths: sizes of the instances, if they differ.
            mask: boolean, True where a part may be used.
        """
        problem = self.structure.problem(self._named("entropy"), scores, lengths, mask)
        mean = self.mean(problem)
        known = torch.where(problem.scores == -math.inf, 0.0, problem.scores)
        return problem.values((self.maximum(problem) - (known * mean).sum(1)) / self.gamma)

    @outside_graphs
    def log_prob(
        self,
        scores: Any,
        target: Any,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The log-probability of given structures, in their natural form.

        Args:
            scores: the parts' scores, in the structure's form; ``-inf`` is a mask.
            target: structures in their natural form.
            lengths: sizes of the instances, if they differ.
            mask: boolean, True where a part may be used.
        """
        return -self.loss(scores, target, lengths=lengths, mask=mask) / self.gamma

    @outside_graphs
    def sample(
        self,
        scores: Any,
        n: int = 1,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> list[Any]:
        """Draw ``n`` structures for each instance: a list of 0/1 structures in the scores' form.

        Args:
            scores: the parts' scores, in the structure's form; ``-inf`` is a mask.
            n: how many, independent of each other.
            lengths: sizes of the instances, if they differ.
            mask: boolean, True where a part may be used.
            generator: where the randomness comes from.
        """
        name = self._named("sample")
        n = check_int(name, "n", n)
        if n < 1:
            raise FenchelError(f"{name}: `n` must be at least 1; got {n}.")
        _check_count(name, "n", n)
        problem = self.structure.problem(name, scores, lengths, mask)
        with torch.no_grad():
            drawn = self.structure.sample_parts(problem, n, self.gamma, generator)
            return [problem.means(problem.indicator(parts)) for parts in drawn]

    @outside_graphs
    def k_best(
        self,
        scores: Any,
        k: int,
        *,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[list[Any], Tensor]:
        """The ``k`` best structures in order, and their log-probabilities (*batch, k).

        An instance that has fewer than k structures has empty ones (all 0) of log-probability
        ``-inf`` at the end.

        Args:
            scores: the parts' scores, in the structure's form; ``-inf`` is a mask.
            k: how many.
            lengths: sizes of the instances, if they differ.
            mask: boolean, True where a part may be used.
        """
        name = self._named("k_best")
        k = check_int(name, "k", k)
        if k < 1:
            raise FenchelError(f"{name}: `k` must be at least 1; got {k}.")
        _check_count(name, "k", k)
        problem = self.structure.problem(name, scores, lengths, mask)
        with torch.no_grad():
            parts, best = self.structure.k_best_parts(problem, k)
            logs = (best - self.maximum(problem).unsqueeze(1)) / self.gamma
            found = [problem.means(problem.indicator(parts[:, i])) for i in range(k)]
        logs = logs.to(problem.device, problem.dtype)
        return found, logs.reshape(*problem.batch_shape, k)

    def mean(self, problem: Problem) -> Tensor:
        return self.structure.smoothed_argmax(problem, "entropy", self.gamma)

    def maximum(self, problem: Problem) -> Tensor:
        return self.structure.smoothed_max(problem, "entropy", self.gamma)

    def __repr__(self) -> str:
        return f"Marginals({self.structure!r}, gamma={self.gamma:g})"


def _check_count(name: str, label: str, count: int) -> None:
    """Refuse a number of structures whose lists no memory holds, before it is asked for."""
    if count >= 2**31:
        raise FenchelError(f"{name}: `{label}` must be below 2**31; got {count}.")
