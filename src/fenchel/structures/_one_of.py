from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_int, check_scores
from fenchel.kernels import k_subsets_log_partition
from fenchel.structures._sizes import check_sizes
from fenchel.structures._structure import BuiltIn, masked
from fenchel.structures._subset_lists import best_subsets, draw_subsets
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

    def enumerate(self, n: int) -> Iterator[tuple[int, ...]]:
        """All members as lists of parts, for ``n`` items."""
        return itertools.combinations(range(n), self.k)

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
        is_index = isinstance(target, Tensor) and not target.is_floating_point()
        if not is_index or target.dtype == torch.bool or target.shape != shape:
            got = type(target).__name__
            if isinstance(target, Tensor):
                got = f"{tuple(target.shape)} of {target.dtype}"
            raise FenchelError(
                f"{name}: expected `target` to hold the indices of the chosen items, an integer "
                f"tensor of shape {tuple(shape)}, but got {got}."
            )
        items = target.long().cpu().reshape(-1, self.k).sort(-1).values
        repeated = (items[:, 1:] == items[:, :-1]).any()
        if bool((items < 0).any() | (items >= problem.sizes).any() | repeated):
            twice = " or occurs twice" if self.k > 1 else ""
            raise FenchelError(
                f"{name}: expected {_items(self.k, ' different')} of each instance in `target`, "
                f"but one is out of range{twice}."
            )
        return items

    def smoothed_max(self, problem: Problem, omega: str, gamma: float) -> Tensor:
        if omega not in self.smoothings:
            raise FenchelError(self.no_smoothing(omega))
        return gamma * k_subsets_log_partition(problem.scores / gamma, self.k, problem.sizes)

    def smoothed_argmax(self, problem: Problem, omega: str, gamma: float) -> Tensor:
        if omega not in self.smoothings:
            raise FenchelError(self.no_smoothing(omega))
        scores = problem.scores / gamma
        if self.k == 1:
            inside = torch.arange(scores.shape[1]) < problem.sizes
            return torch.softmax(torch.where(inside, scores, -math.inf), 1)
        graph = scores.requires_grad and torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():
            scores = scores if graph else scores.detach().clone().requires_grad_()
            value = k_subsets_log_partition(scores, self.k, problem.sizes)
            (means,) = torch.autograd.grad(value.sum(), scores, create_graph=graph)
        return means

    def sample_parts(
        self, problem: Problem, n: int, temperature: float, generator: torch.Generator | None
    ) -> Tensor:
        return draw_subsets(problem.scores / temperature, self.k, problem.sizes, n, generator)

    def k_best_parts(self, problem: Problem, k: int) -> tuple[Tensor, Tensor]:
        return best_subsets(problem.scores, self.k, problem.sizes, k)

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

    def _target_shape(self, batch_shape: torch.Size) -> torch.Size:
        return batch_shape


def _items(k: int, kind: str = "") -> str:
    return "one item" if k == 1 else f"{k}{kind} items"
