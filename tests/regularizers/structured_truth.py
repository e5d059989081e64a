"""What every structured Ω must answer, from all members of an instance or its own recursion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.optimize import nnls
from torch import Tensor

import fenchel as fy
from fenchel.regularizers import StructuredRegularizer
from fenchel.structures.problem import Problem
from tests.regularizers.structured_cases import CASES, Case


def scores_of(members: Tensor, row: Tensor) -> Tensor:
    return torch.where(members > 0, members * row, 0.0).sum(1)


def best(members: Tensor, row: Tensor, n_unary: int, gamma: float) -> tuple[Tensor, Tensor]:
    values = scores_of(members, row)
    return values.amax(), members[values.argmax()]


def gibbs(members: Tensor, row: Tensor, n_unary: int, gamma: float) -> tuple[Tensor, Tensor]:
    values = scores_of(members, row) / gamma
    return gamma * values.logsumexp(0), values.softmax(0) @ members


def projection(members: Tensor, row: Tensor, n_unary: int, gamma: float) -> tuple[Tensor, Tensor]:
    r"""max pᵀs − γ/2 ‖pᵀM‖², by the proximal point method, each step a least-squares problem.

    A step has a regular matrix H, so that the objective is ½‖L'p − L⁻¹b‖² with H = LL'; on the
    simplex that is a nearest point of a polytope, which non-negative least squares finds.
    """
    every, values = members.numpy(), scores_of(members, row).numpy()
    unary = every[:, :n_unary]
    near = 0.1
    lower = np.linalg.cholesky(gamma * unary @ unary.T + near * np.eye(len(every)))
    p = np.full(len(every), 1 / len(every))
    for _ in range(500):
        wanted = np.linalg.solve(lower, values + near * p)
        corners = lower.T - wanted[:, None]
        high = np.abs(corners).max()
        matrix = np.vstack([corners / high, np.ones(len(every))])
        weights, _ = nnls(matrix, np.append(np.zeros(len(every)), 1.0))
        weights /= weights.sum()
        step, p = np.abs(weights - p).max(), weights
        if step < 1e-13:
            break
    mean = p @ every
    gap = (values - gamma * unary @ mean[:n_unary]).max()
    gap -= p @ values - gamma * mean[:n_unary] @ mean[:n_unary]
    assert gap < 1e-10, gap
    value = p @ values - gamma / 2 * mean[:n_unary] @ mean[:n_unary]
    return torch.tensor(value), torch.tensor(mean)


# --------------------------------------------------------------------- smoothed dynamic programs


def l2_max(x: Tensor, gamma: float) -> Tensor:
    """max_p <p, x> − γ/2 ‖p‖² on the simplex, over the last axis."""
    kept = x[x > -torch.inf]
    if len(kept) == 0:
        return torch.tensor(-torch.inf, dtype=x.dtype)
    known = kept.detach() / gamma
    low, high = known.amax() - 1, known.amax()
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if (known - middle).clamp(min=0).sum() > 1 else (low, middle)
    p = (known - high).clamp(min=0)
    p = p / p.sum()
    return p @ kept - gamma / 2 * p @ p  # its gradient is p, by the envelope theorem


def l2_chain(problem: Problem, flat: Tensor, at: int, gamma: float) -> Tensor:
    positions, k, kind, has_start, has_end = problem.layout
    squares = (0, 1, positions - 1)[kind]
    emissions, rest = flat[: positions * k].reshape(positions, k), flat[positions * k :]
    transitions, rest = rest[: squares * k * k].reshape(squares, k, k), rest[squares * k * k :]
    state = emissions[0] + (rest[:k] if has_start else 0.0)
    for t in range(1, int(problem.sizes[at, 0])):
        square = transitions[(0, 0, t - 1)[kind]] if kind else torch.zeros(k, k)
        into = [l2_max(state + square[:, j], gamma) for j in range(k)]
        state = emissions[t] + torch.stack(into)
    return l2_max(state + (rest[-k:] if has_end else 0.0), gamma)


def l2_path(problem: Problem, flat: Tensor, at: int, gamma: float) -> Tensor:
    cells = flat.reshape(problem.layout)
    height, width = problem.sizes[at].tolist()
    best: dict[tuple[int, int], Tensor] = {}
    for i in range(height):
        for j in range(width):
            before = [best[x] for x in ((i - 1, j - 1), (i - 1, j), (i, j - 1)) if x in best]
            start = l2_max(torch.stack(before), gamma) if before else 0.0
            best[i, j] = cells[i, j] + start
    return best[height - 1, width - 1]


# ------------------------------------------------------------------------------- the regularizers

Truth = Callable[[Tensor, Tensor, int, float], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Omega:
    """A regularizer, its answers from all members, and Ω of members as counts (rows, parts)."""

    name: str
    make: Callable[[fy.Structure], StructuredRegularizer]
    truth: Truth | None
    gamma: float = 1.0
    needs: str = ""
    smooth: bool = True  # gradients of every order

    def __repr__(self) -> str:
        return self.name

    def answers(self, case: Case, added: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Conjugates (instances) and means (instances, parts), at scores with something added."""
        problem = case.problem
        rows = problem.scores if added is None else problem.scores + added
        if self.truth is None:
            return self._recursions(case, rows)
        found = [
            self.truth(members, row, problem.n_unary, self.gamma)
            for members, row in zip(case.members(), rows, strict=True)
        ]
        values, means = zip(*found, strict=True)
        return torch.stack(values), torch.stack(means)

    def _recursions(self, case: Case, rows: Tensor) -> tuple[Tensor, Tensor]:
        leaf = rows.clone().requires_grad_()

        recursion = l2_chain if isinstance(case.structure, fy.Sequence) else l2_path
        at = case.problem
        values = torch.stack([recursion(at, row, k, self.gamma) for k, row in enumerate(leaf)])
        (means,) = torch.autograd.grad(values.sum(), leaf)
        return values.detach(), means

    def of(self, case: Case, members: Tensor) -> Tensor:
        """Ω of a member of each instance."""
        problem = case.problem
        if self.truth is projection:
            return self.gamma / 2 * members[:, : problem.n_unary].square().sum(1)
        if self.truth is None:
            chain = isinstance(case.structure, fy.Sequence)
            choices = problem.sizes[:, 0] if chain else members.sum(1) - 1
            return self.gamma / 2 * choices.double()
        return torch.zeros(len(members), dtype=torch.float64)


OMEGAS = [
    Omega("map", fy.MAP, best, smooth=False),
    Omega("marginals", fy.Marginals, gibbs, needs="entropy"),
    Omega("marginals-0.3", lambda s: fy.Marginals(s, 0.3), gibbs, 0.3, needs="entropy"),
    Omega("sparsemap", fy.SparseMAP, projection, smooth=False),
    Omega("sparsemap-0.4", lambda s: fy.SparseMAP(s, 0.4), projection, 0.4, smooth=False),
    Omega("dp-entropy", lambda s: fy.SmoothedDP(s, "entropy", 0.6), gibbs, 0.6, needs="l2"),
    Omega("dp-l2", lambda s: fy.SmoothedDP(s, "l2", 0.8), None, 0.8, needs="l2", smooth=False),
]
PAIRS = [
    pytest.param(omega, case, id=f"{omega}-{case}")
    for omega in OMEGAS
    for case in CASES
    if not omega.needs or omega.needs in case.structure.smoothings
]

#: One of each kind, for what costs time and has nothing to do with gamma.
LEAN = ("map", "marginals-", "sparsemap-", "dp-l2")

every_pair = pytest.mark.parametrize(("omega", "case"), PAIRS)


def pairs(*, smooth: bool | None = None, padded: bool = False, names: str | tuple[str, ...] = ""):
    """The pairs of a kind."""
    kept = []
    for pair in PAIRS:
        omega, case = pair.values
        fits = smooth is None or omega.smooth == smooth
        fits &= not padded or case.lengths is not None
        if fits and omega.name.startswith(names):
            kept.append(pair)
    return pytest.mark.parametrize(("omega", "case"), kept)


def close(got, wanted, tolerance=1e-9):
    torch.testing.assert_close(got, wanted, atol=tolerance, rtol=tolerance)
