from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_int, check_positive
from fenchel._graphs import outside_graphs
from fenchel.regularizers._envelope import envelope
from fenchel.regularizers._structured import StructuredRegularizer, inner, means_of
from fenchel.solvers import SparseDistribution
from fenchel.solvers.sparsemap import sparse_map, sparse_map_means
from fenchel.structures import Structure
from fenchel.structures.problem import Problem


class SparseMAP(StructuredRegularizer):
    r"""Euclidean projection onto the hull of the structures: a mean of few of them.

    .. math:: \Omega(\mu) = \tfrac\gamma2 \|\mu_u\|^2, \qquad \hat\mu = \arg\max_{\mu \in
        \operatorname{conv} \mathcal Y} \langle \theta, \mu \rangle - \tfrac\gamma2 \|\mu_u\|^2

    where :math:`\mu_u` are the unary parts (tags, arcs, cells), not transitions. It needs nothing
    but the structure's argmax, so it is there where marginals are not (assignments), and it is
    exact: the active-set method ends after finitely many steps, and the answer carries its gap.
    With one-of-k it is sparsemax. The mean is unique; the structures and weights that give it are
    not.

    Which one should I use? SparseMAP for a hidden layer or a loss that should commit to few
    structures; :class:`Marginals` for likelihoods; :class:`MAP` for the single best;
    :class:`SmoothedDP` for a cheap sparse relaxation of a dynamic program.

    Args:
        structure: what to choose from; one with only an ``argmax`` of its own will do.
        gamma: how strong, above 0; less is sparser, and at 0 it would be :class:`MAP`.
        max_iter: the most steps of the solver for one instance; it warns if they do not suffice.
        tol: the gap, relative to the size of the scores, at which an instance is done.

    Example:
        >>> omega = SparseMAP(fy.KSubsets(2))
        >>> omega.predict(torch.tensor([0.5, 0.4, 0.3, -2.0]))
        tensor([0.7667, 0.6667, 0.5667, 0.0000])
        >>> answer = omega.solve(torch.tensor([0.5, 0.4, 0.3, -2.0]))
        >>> answer.sizes, answer.iterations, answer.converged
        (tensor(3), tensor(2), tensor(True))
        >>> answer.structure(0), answer.weights[0]
        (tensor([1., 1., 0., 0.]), tensor(0.4333, dtype=torch.float64))

    References:
        Niculae, Martins, Blondel & Cardie. SparseMAP: Differentiable Sparse Structured Inference.
        ICML 2018.
    """

    def __init__(
        self,
        structure: Structure,
        gamma: float = 1.0,
        *,
        max_iter: int = 10_000,
        tol: float = 1e-12,
    ) -> None:
        super().__init__(structure)
        self.gamma = check_positive(
            "SparseMAP", "gamma", gamma, 1e300, "a finite number above 0 (0 would be MAP)"
        )
        self.max_iter = check_int("SparseMAP", "max_iter", max_iter)
        if self.max_iter < 1:
            raise FenchelError(f"SparseMAP: `max_iter` must be at least 1; got {max_iter}.")
        self.tol = check_positive("SparseMAP", "tol", tol, 1.0, "a number above 0, at most 1")

    @property
    def margin(self) -> float:
        """A structure must lead each other by γ/2 times their squared distance: γ for one of k."""
        return self.gamma

    def omega_at(self, problem: Problem) -> Tensor:
        return 0.5 * self.gamma * means_of(problem)[:, : problem.n_unary].square().sum(1)

    def gradient_at(self, problem: Problem) -> Tensor:
        slope = self.gamma * means_of(problem).detach()
        slope[:, problem.n_unary :] = 0
        return slope

    @outside_graphs
    def solve(
        self, scores: Any, *, lengths: Tensor | None = None, mask: Tensor | None = None
    ) -> SparseDistribution:
        """The structures, their weights, the gap and the iterations, for θ/γ.

        Args:
            scores: the parts' scores, in the structure's form; ``-inf`` is a mask.
            lengths: sizes of the instances, if they differ.
            mask: boolean, True where a part may be used.
        """
        problem = self.structure.problem(self._named("solve"), scores, lengths, mask)
        problem = self._in_units_of_gamma(problem)
        with torch.no_grad():
            found = sparse_map(self.structure, problem, max_iter=self.max_iter, tol=self.tol)
        batch = problem.batch_shape
        return replace(
            found,
            means=problem.means(found.means),
            structures=found.structures.reshape(*batch, *found.structures.shape[1:]),
            weights=found.weights.reshape(*batch, found.weights.shape[1]),
            gap=found.gap.reshape(batch),
            iterations=found.iterations.reshape(batch),
            status=found.status.reshape(batch),
            problem=problem,
        )

    def mean(self, problem: Problem) -> Tensor:
        return self._mean(problem, derivative_is_rare=False)

    def _mean(self, problem: Problem, derivative_is_rare: bool) -> Tensor:
        return sparse_map_means(
            self.structure,
            self._in_units_of_gamma(problem),
            max_iter=self.max_iter,
            tol=self.tol,
            derivative_is_rare=derivative_is_rare,
        )

    def maximum(self, problem: Problem) -> Tensor:
        mean = self._mean(problem, derivative_is_rare=True)
        known = mean.detach()
        half = 0.5 * self.gamma * known[:, : problem.n_unary].square().sum(1)
        return envelope(inner(problem.scores.detach(), known) - half, problem.scores, mean)

    def against(self, problem: Problem, parts: Tensor) -> Tensor:
        n, y = problem.n_unary, problem.indicator(parts)
        mean = self._mean(problem, derivative_is_rare=True)
        apart = mean.detach() - y
        slope = problem.scores.detach().clone()
        slope[:, :n] -= self.gamma * mean.detach()[:, :n]
        # Both terms are at least 0, the first by the optimality of the mean.
        value = inner(slope, apart).clamp(min=0)
        value = value + 0.5 * self.gamma * apart[:, :n].square().sum(1)
        return envelope(value, problem.scores, mean - y)

    def _in_units_of_gamma(self, problem: Problem) -> Problem:
        return problem if self.gamma == 1 else replace(problem, scores=problem.scores / self.gamma)

    def __repr__(self) -> str:
        return f"SparseMAP({self.structure!r}, gamma={self.gamma:g})"
