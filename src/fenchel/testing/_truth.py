"""What the library's structured Ω must answer, from all members of an instance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fenchel.regularizers import MAP, Marginals, SmoothedDP, SparseMAP, StructuredRegularizer
from fenchel.testing._cases import Recursion, StructureCase, scores_of
from fenchel.testing._failure import CheckFailed

#: (members, scores, n_unary, gamma) to the value and the mean.
Truth = Callable[[Tensor, Tensor, int, float], tuple[Tensor, Tensor]]

_solved: dict[Any, tuple[Tensor, Tensor]] = {}


def best(members: Tensor, row: Tensor, n_unary: int, gamma: float) -> tuple[Tensor, Tensor]:
    """The maximum, and a member that has it."""
    values = scores_of(members, row)
    return values.amax(), members[values.argmax()]


def gibbs(members: Tensor, row: Tensor, n_unary: int, gamma: float) -> tuple[Tensor, Tensor]:
    """The log-partition and the mean of all members by their probabilities."""
    values = scores_of(members, row) / gamma
    return gamma * values.logsumexp(0), values.softmax(0) @ members


def projection(members: Tensor, row: Tensor, n_unary: int, gamma: float) -> tuple[Tensor, Tensor]:
    r"""max pᵀs − γ/2 ‖pᵀM‖², by the proximal point method, each step a least-squares problem.

    A step has a regular matrix H, so that the objective is ½‖L'p − L⁻¹b‖² with H = LL'; on the
    simplex that is a nearest point of a polytope, which non-negative least squares finds.
    """
    used = tuple(members.nonzero().flatten().tolist())
    key = (members.shape, used, tuple(row.tolist()), n_unary, gamma)
    if key in _solved:
        return _solved[key]
    values, unary = scores_of(members, row.detach()), members[:, :n_unary]
    near, count = 0.1, len(members)
    eye = torch.eye(count, dtype=torch.float64)
    lower = torch.linalg.cholesky(gamma * unary @ unary.T + near * eye)
    p = torch.full((count,), 1 / count, dtype=torch.float64)
    goal = torch.cat([torch.zeros(count), torch.ones(1)]).double()
    for _ in range(500):
        right = (values + near * p).unsqueeze(1)
        wanted = torch.linalg.solve_triangular(lower, right, upper=False)
        corners = lower.T - wanted
        matrix = torch.cat([corners / corners.abs().amax(), torch.ones(1, count)])
        weights = nonnegative_least_squares(matrix, goal, p > 0)
        weights = weights / weights.sum()
        step, p = float((weights - p).abs().amax()), weights
        if step < 1e-13:
            break
    mean = p @ members
    at = mean[:n_unary]
    gap = float((values - gamma * unary @ at).amax() - p @ values + gamma * at @ at)
    if gap > 1e-10 * (1 + float(values.abs().amax())):
        raise CheckFailed(f"the truth of SparseMAP was not found: a gap of {gap:.1e} is left")
    _solved[key] = p @ values - gamma / 2 * at @ at, mean
    return _solved[key]


def nonnegative_least_squares(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """argmin over x ≥ 0 of ‖a x − b‖: Lawson and Hanson's active set, from a first guess of it."""
    n = a.shape[1]
    x = torch.zeros(n, dtype=a.dtype)
    used = start.clone()
    fresh = bool(used.any())
    for _ in range(20 * n + 100):
        if not fresh:
            slope = torch.where(used, -math.inf, a.T @ (b - a @ x))
            if float(slope.amax()) <= 1e-15 * n:
                break
            used[slope.argmax()] = True
        fresh = False
        while True:
            s = torch.zeros_like(x)
            s[used] = torch.linalg.lstsq(a[:, used], b.unsqueeze(1)).solution.squeeze(1)
            low = used & (s <= 0)
            if not bool(low.any()):
                break
            step = (x[low] / (x[low] - s[low]).clamp(min=1e-300)).amin().clamp(0, 1)
            x = x + step * (s - x)
            leaving = low & (x <= 1e-15)
            used &= ~(leaving if bool(leaving.any()) else low)
            x = torch.where(used, x, 0.0)
        x = s
    return x


def l2_max(x: Tensor, gamma: float) -> Tensor:
    """max over the simplex of <p, x> − γ/2 ‖p‖², along one axis; -inf entries have no share."""
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


def truth_of(omega: StructuredRegularizer, case: StructureCase) -> Truth | Recursion | None:
    """Where the answers of an Ω come from; None if nobody knows them."""
    if not isinstance(omega, MAP | Marginals | SparseMAP | SmoothedDP) or not case.can_be_listed:
        return None
    if isinstance(omega, SmoothedDP) and omega.omega == "l2":
        return case.recursion
    if isinstance(omega, MAP):
        return best
    return projection if isinstance(omega, SparseMAP) else gibbs


def answers(
    omega: StructuredRegularizer, case: StructureCase, added: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Conjugates (instances) and means (instances, parts), at scores with something added."""
    problem, gamma = case.problem, getattr(omega, "gamma", 1.0)
    rows = problem.scores if added is None else problem.scores + added
    truth: Any = truth_of(omega, case)
    if is_recursion(omega):
        leaf = rows.clone().requires_grad_()
        found = [truth(problem, row, at, gamma) for at, row in enumerate(leaf)]
        (means,) = torch.autograd.grad(torch.stack(found).sum(), leaf)
        return torch.stack(found).detach(), means
    pairs = [
        truth(members, row, problem.n_unary, gamma)
        for members, row in zip(case.members(), rows, strict=True)
    ]
    return torch.stack([value for value, _ in pairs]), torch.stack([mean for _, mean in pairs])


def omega_of(omega: StructuredRegularizer, case: StructureCase, members: Tensor) -> Tensor:
    """Ω of a member of each instance, as counts (instances, parts)."""
    problem, gamma = case.problem, getattr(omega, "gamma", 1.0)
    n = problem.n_unary
    if isinstance(omega, SparseMAP):
        return gamma / 2 * members[:, :n].square().sum(1)
    if not is_recursion(omega):
        return torch.zeros(len(members), dtype=torch.float64)
    # Where a member leads by so much that every choice is certain, Ω* is its score less Ω.
    lead, found = 1e3 * gamma, []
    truth: Any = truth_of(omega, case)
    for at, y in enumerate(members):
        scores = torch.zeros_like(y)
        scores[:n] = lead * (2 * y[:n] - 1)
        found.append(scores @ y - truth(problem, scores, at, gamma))
    return torch.stack(found)


def is_recursion(omega: StructuredRegularizer) -> bool:
    return isinstance(omega, SmoothedDP) and omega.omega == "l2"
