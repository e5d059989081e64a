from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_int, check_scores
from fenchel.structures._sizes import check_sizes
from fenchel.structures._structure import BuiltIn, check_integers, masked
from fenchel.structures.problem import Problem, Shaped, check_values, to_flat


class KSubsets(BuiltIn):
    r"""Subsets of ``k`` out of ``n`` items; ``k = 1`` is one of n.

    Scores are (*batch, n) and so are means; a target is a list of the chosen items, (*batch, k).

    Args:
        k: how many items a subset has, at least 1.

    Example:
        >>> KSubsets(2).argmax(torch.tensor([0.1, 3.0, -1.0, 2.0]))
        tensor([0., 1., 0., 1.])
    """

    event_dim = 1
    smoothings = ("entropy",)

    def __init__(self, k: int) -> None:
        self.k = check_int("KSubsets", "k", k)
        if self.k < 1:
            raise FenchelError(f"KSubsets: `k` must be at least 1; got {k}.")

    def enumerate(self, problem: Problem, row: int = 0) -> Iterator[tuple[int, ...]]:
        """All subsets of instance ``row`` as lists of parts, which are items."""
        return itertools.combinations(range(int(problem.sizes[row])), self.k)

    def __repr__(self) -> str:
        return f"KSubsets({self.k})"

    def problem(self, name: str, scores: Any, lengths: Any = None, mask: Any = None) -> Problem:
        check_scores(name, scores, -1)
        n = scores.shape[-1]
        batch_shape = scores.shape[:-1]
        sizes = check_sizes(name, lengths, batch_shape, (n,))
        flat = to_flat(masked(name, scores, mask)).reshape(-1, n)
        flat = torch.where(torch.arange(n) < sizes, flat, 0.0)  # padding may hold anything
        check_values(name, flat)
        inside = torch.arange(n) < sizes
        enough = ((flat.detach() > -math.inf) & inside).sum(1) >= self.k
        if not bool(enough.all()):
            raise FenchelError(
                f"{name}: expected at least {_items(self.k)} with a finite score in every "
                f"instance, but instance {int((~enough).long().argmax())} of the batch has fewer."
            )
        return Problem(
            scores=flat,
            n_unary=n,
            sizes=sizes,
            layout=(n, self.k),
            batch_shape=batch_shape,
            dtype=scores.dtype,
            device=scores.device,
            restore=Shaped(scores.shape),
        )

    def target_parts(self, name: str, problem: Problem, target: Any) -> Tensor:
        shape = self._target_shape(problem.batch_shape)
        items = check_integers(name, target, shape, "the indices of the chosen items")
        items = items.reshape(-1, self.k).sort(-1).values
        repeated = (items[:, 1:] == items[:, :-1]).any()
        if bool((items < 0).any() | (items >= problem.sizes).any() | repeated):
            twice = " or occurs twice" if self.k > 1 else ""
            raise FenchelError(
                f"{name}: expected {_items(self.k, ' different')} of each instance in `target`, "
                f"but one is out of range{twice}."
            )
        return items

    def to_target(self, problem: Problem, parts: Tensor) -> Tensor:
        items = problem.indicator(parts).nonzero()[:, 1]
        return items.reshape(self._target_shape(problem.batch_shape))

    def kind(self, problem: Problem) -> str:
        return "k_subsets"

    def _target_shape(self, batch_shape: torch.Size) -> torch.Size:
        return torch.Size((*batch_shape, self.k))


class OneOf(KSubsets):
    r"""One of n items: the corners of the simplex.

    Scores are (*batch, n) and so are means; a target is the index of the item, (*batch).

    Example:
        >>> OneOf().argmax(torch.tensor([0.1, 3.0, -1.0, 2.0]))
        tensor([0., 1., 0., 0.])
    """

    def __init__(self) -> None:
        super().__init__(1)

    def __repr__(self) -> str:
        return "OneOf()"

    def smoothed_argmax(self, problem: Problem, omega: str, gamma: float) -> Tensor:
        self._check_smoothing(omega)
        inside = torch.arange(problem.scores.shape[1]) < problem.sizes
        return torch.softmax(torch.where(inside, problem.scores / gamma, -math.inf), 1)

    def _target_shape(self, batch_shape: torch.Size) -> torch.Size:
        return batch_shape


def _items(k: int, kind: str = "") -> str:
    return "one item" if k == 1 else f"{k}{kind} items"
