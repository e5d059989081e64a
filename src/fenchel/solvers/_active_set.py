"""SparseMAP by the active-set method in plain torch, for any oracle. The definition of correct."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fenchel.kernels import INFEASIBLE, MAX_ITER, SOLVED, STALLED, Faces

#: The oracle: which instances are asked about, and scores (asked, parts), to lists of parts.
Best = Callable[[Tensor, Tensor], Tensor]

_EPS = torch.finfo(torch.float64).eps
_FLAT = 1e-9  # points are vectors of small whole numbers: a squared distance this small is rounding


@torch.no_grad()
def active_set(
    best: Best, scores: Tensor, n_unary: int, max_iter: int, tol: float, complete: bool
) -> Faces:
    """SparseMAP of each instance; the oracle is asked about all that are not done at once.

    Args:
        best: the oracle.
        scores: (instances, parts), float64.
        n_unary: the first so many parts have a quadratic term.
        max_iter: the most members that may enter.
        tol: the gap that is small enough, relative to the size of the scores.
        complete: whether members of weight 0 follow until they span the whole face, which its
            derivative needs.
    """
    tol = max(tol, 64 * _EPS)
    left = torch.arange(scores.shape[0])
    runs = [_Run(row, n_unary, max_iter, tol) for row in scores]
    while len(left) > 0:
        slopes = torch.stack([runs[i].slopes() for i in left.tolist()])
        found = best(left, slopes)
        going = [runs[i].take(parts) for i, parts in zip(left.tolist(), found, strict=True)]
        left = left[torch.tensor(going)]
    if complete:
        for i, run in enumerate(runs):
            _fill_face(run, best, torch.tensor([i]))
    return _padded(runs, scores)


class _Run:
    """One instance: the members that have a weight, and what became of it."""

    def __init__(self, scores: Tensor, n_unary: int, max_iter: int, tol: float) -> None:
        self.scores, self.n_unary, self.max_iter, self.tol = scores, n_unary, max_iter, tol
        self.lists: list[Tensor] = []
        self.points = scores.new_zeros(0, n_unary)  # the members' counts of unary parts
        self.values = scores.new_zeros(0)  # the members' scores
        self.weights = scores.new_zeros(0)
        self.matrix, self.nearest = scores.new_zeros(0, 0), scores.new_zeros(0)
        self.scale, self.gap, self.iterations, self.status = 1.0, 0.0, 0, SOLVED

    def slopes(self) -> Tensor:
        slopes = self.scores.clone()
        slopes[: self.n_unary] -= self.weights @ self.points
        return slopes

    def take(self, parts: Tensor) -> bool:
        """Take the oracle's answer to the slopes; whether there is more to ask."""
        if len(parts) > 0 and int(parts[0]) == -2:
            self.status = INFEASIBLE
            return False
        parts, point, value = self._member(parts)
        if not self.lists:
            self._append(parts, point, value, 1.0)
            return True
        self.gap = max(self._ahead(point, value), 0.0)
        if self.gap <= self.tol * self.scale:
            return False
        if self.iterations >= self.max_iter:
            self.status = MAX_ITER
            return False
        if not self._enter(parts, point, value):
            self.status = STALLED
            return False
        self.iterations += 1
        return True

    def join(self, parts: Tensor) -> tuple[bool, bool]:
        """Take a member with weight 0 if it adds a dimension: was it taken, is it on the face."""
        parts, point, value = self._member(parts)
        if -self._ahead(point, value) > 4 * self.tol * self.scale:
            return False, False
        foot = self.matrix @ (self.points @ point) + self.nearest
        if (point - foot @ self.points).square().sum() <= 1e-6 * (1 + point.square().sum()):
            return False, True
        self._append(parts, point, value, 0.0)
        return True, True

    def _member(self, parts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """A list of parts without padding, its counts of unary parts, and its score."""
        parts = parts[parts >= 0]
        unary = parts[parts < self.n_unary]
        point = self.scores.new_zeros(self.n_unary)
        point = point.index_add(0, unary, self.scores.new_ones(len(unary)))
        self.scale = max(self.scale, 1.0 + float(self.scores[parts].abs().sum()))
        return parts, point, self.scores[parts].sum()

    def _ahead(self, point: Tensor, value: Tensor) -> float:
        """How much more a member scores, by the slopes, than the mean."""
        mean = self.weights @ self.points
        return float((self.weights * (value - self.values)).sum() - (point - mean) @ mean)

    def _enter(self, parts: Tensor, point: Tensor, value: Tensor) -> bool:
        """Let a member in and correct all weights; False if it is nothing new."""
        foot = self.matrix @ (self.points @ point) + self.nearest
        apart = (point - foot @ self.points).square().sum()
        weight = 0.0
        if apart <= _FLAT * (1 + point.square().sum()):
            # An affine combination of the members, as far as the quadratic term can see: weight
            # moves along it, as the scores of the other parts want, until a member has none left.
            if value - foot @ self.values <= self.tol * self.scale:
                return False
            ratio = torch.where(foot > 1e-6, self.weights / foot, torch.inf)
            out = int(ratio.argmin())
            weight = float(ratio[out])
            self.weights = (self.weights - weight * foot).clamp(min=0)
            self._drop(out)
        self._append(parts, point, value, weight)
        self._correct()
        return True

    def _correct(self) -> None:
        """Go to the best weights of the members; where a weight falls to 0, without that member."""
        while len(self.lists) > 1:
            slack = self.values - self.points @ (self.weights @ self.points)
            step = self.matrix @ (slack - slack.mean())
            low = self.weights + step <= 4 * _EPS * self.scale
            if not bool(low.any()):
                self.weights = self.weights + step
                break
            ratio = torch.where(step < 0, (self.weights / -step).clamp(max=1.0), 1.0)
            out = int(torch.where(low, ratio, torch.inf).argmin())
            self.weights = (self.weights + ratio[out] * step).clamp(min=0)
            self._drop(out)
        self.weights = self.weights / self.weights.sum()

    def _append(self, parts: Tensor, point: Tensor, value: Tensor, weight: float) -> None:
        self.lists.append(parts)
        self.points = torch.cat([self.points, point.unsqueeze(0)])
        self.values = torch.cat([self.values, value.reshape(1)])
        self.weights = torch.cat([self.weights, self.weights.new_tensor([weight])])
        self._factor()

    def _drop(self, out: int) -> None:
        keep = torch.arange(len(self.lists)) != out
        del self.lists[out]
        self.points, self.values = self.points[keep], self.values[keep]
        self.weights = self.weights[keep]
        self._factor()

    def _factor(self) -> None:
        """The inverse of [G 1; 1' 0], where G is the members' Gram matrix."""
        if not self.lists:
            return
        inverse = torch.linalg.inv(self.points @ self.points.T + 1.0)
        ones = inverse.sum(1)
        self.nearest = ones / ones.sum()
        self.matrix = inverse - torch.outer(ones, ones) / ones.sum()


def _fill_face(run: _Run, best: Best, row: Tensor) -> None:
    """Members of weight 0, until there are as many as the face has dimensions.

    The solution may need fewer (all scores equal, say), or some weights may be too small to be
    found. The face's other members are the best ones for slopes that are pushed a little across the
    members' hull, in which the solution lies. Once a random push finds none, there is none: a
    linear function whose maximum over a face is inside of it is constant there.
    """
    if len(run.lists) < 2:  # a corner of the polytope: it does not move
        return
    noise = torch.rand(run.n_unary, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise, slopes, least = 2 * noise - 1, run.slopes(), 16 * run.tol
    push = max(1e-7, 64 * least)
    for _ in range(run.max_iter - run.iterations):
        across = noise - (run.matrix @ (run.points @ noise)) @ run.points
        pushed = slopes.clone()
        pushed[: run.n_unary] += push * run.scale * across
        found, inside = run.join(best(row, pushed.unsqueeze(0))[0])
        if not inside:  # it went past the face
            push /= 64
        if push < least or (inside and not found):
            return


def _padded(runs: list[_Run], scores: Tensor) -> Faces:
    count = len(runs)
    widest = max((len(run.lists) for run in runs), default=0)
    longest = max((len(parts) for run in runs for parts in run.lists), default=0)
    lists = torch.full((count, widest, longest), -1, dtype=torch.int32)
    weights, matrix = scores.new_zeros(count, widest), scores.new_zeros(count, widest, widest)
    means = torch.zeros_like(scores)
    for i, run in enumerate(runs):
        size = len(run.lists)
        weights[i, :size], matrix[i, :size, :size] = run.weights, run.matrix
        for s, parts in enumerate(run.lists):
            lists[i, s, : len(parts)] = parts
            means[i].index_add_(0, parts, run.weights[s].expand(len(parts)))
    return Faces(
        means,
        lists,
        weights,
        matrix,
        scores.new_tensor([run.gap for run in runs]),
        torch.tensor([run.iterations for run in runs], dtype=torch.int64),
        torch.tensor([run.status for run in runs], dtype=torch.int64),
    )
