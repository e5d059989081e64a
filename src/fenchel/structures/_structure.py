from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import FenchelError, check_mask, check_scores
from fenchel._graphs import outside_graphs
from fenchel.structures._smoothed import smoothed_argmax, smoothed_max
from fenchel.structures.problem import Problem, Shaped, check_values, to_flat


class Structure(ABC):
    r"""A finite set of 0/1 vectors, known by its oracle for the best of them.

    .. math:: \operatorname{argmax}(\theta) \in \arg\max_{y \in \mathcal Y} \langle \theta, y\rangle

    That is all a new structure needs: a class with ``argmax``, which gets the scores of one
    instance (float64, without a graph) and returns 0s and 1s of the same shape. ``event_dim`` says
    how many trailing axes make one instance; the axes before them are a batch. Such a structure
    works with :class:`fenchel.MAP` and :class:`fenchel.SparseMAP`. An argmax that finds no
    structure without a part of score ``-inf`` returns None; the error is what ``infeasible`` says.

    Example:
        >>> class Interval(fy.Structure):  # one contiguous run of items
        ...     def argmax(self, scores):
        ...         n = len(scores)
        ...         runs = [(i, j) for i in range(n) for j in range(i + 1, n + 1)]
        ...         i, j = max(runs, key=lambda run: float(scores[run[0]:run[1]].sum()))
        ...         best = torch.zeros_like(scores)
        ...         best[i:j] = 1
        ...         return best
        >>> Interval().argmax(torch.tensor([1.0, -0.5, 2.0, -3.0]))
        tensor([1., 1., 1., 0.])
    """

    #: How many trailing axes of the scores make one instance.
    event_dim: int = 1
    #: The smoothed maxima that have a dynamic program here: of ``"entropy"`` and ``"l2"``.
    smoothings: tuple[str, ...] = ()

    @abstractmethod
    def argmax(self, scores: Any) -> Any:
        """The best structure as 0s and 1s, in the form of the scores; one of them on ties."""

    # ------------------------------------------------------------------ what solvers call

    def problem(self, name: str, scores: Any, lengths: Any = None, mask: Any = None) -> Problem:
        """Check the scores and make them flat."""
        if lengths is not None:
            raise FenchelError(
                f"{name}: {type(self).__name__} has no `lengths`; mask what is not there with "
                "`mask` or -inf."
            )
        check_scores(name, scores, -1)
        if scores.dim() < self.event_dim:
            raise FenchelError(
                f"{name}: expected `scores` with at least {self.event_dim} axes (event_dim of "
                f"{type(self).__name__}), but got shape {tuple(scores.shape)}."
            )
        flat = to_flat(masked(name, scores, mask))
        cut = scores.dim() - self.event_dim
        parts = math.prod(scores.shape[cut:])
        flat = flat.reshape(-1 if parts else 0, parts)
        check_values(name, flat)
        return Problem(
            scores=flat,
            n_unary=parts,
            sizes=torch.empty(flat.shape[0], 0, dtype=torch.int64),
            layout=tuple(scores.shape[cut:]),
            batch_shape=scores.shape[:cut],
            dtype=scores.dtype,
            device=scores.device,
            restore=Shaped(scores.shape),
        )

    def best_parts(self, problem: Problem, scores: Tensor) -> Tensor:
        """The best structure of each instance for other scores (instances, parts) of the problem.

        Returns:
            Lists of parts (instances, longest), int64, with -1 in the places that are left; a part
            may occur more than once. No graph.
        """
        rows: list[Tensor] = []
        for row in scores.detach():
            best = self.argmax(row.reshape(problem.layout))
            if best is None:
                raise FenchelError(self.infeasible(len(rows)))
            if not isinstance(best, Tensor) or tuple(best.shape) != problem.layout:
                got = tuple(best.shape) if isinstance(best, Tensor) else type(best).__name__
                raise FenchelError(
                    f"{type(self).__name__}.argmax: expected a tensor of 0s and 1s of shape "
                    f"{problem.layout}, but got {got}."
                )
            flat = best.reshape(-1)
            if not bool(((flat == 0) | (flat == 1)).all()):
                raise FenchelError(
                    f"{type(self).__name__}.argmax: expected 0s and 1s, but got other values."
                )
            parts = flat.nonzero().squeeze(1)
            if bool((row[parts] == -math.inf).any()):
                raise FenchelError(
                    f"{type(self).__name__}.argmax: expected a structure without parts of score "
                    "-inf, but got one that uses them; either it looks past the mask, or too much "
                    "is masked."
                )
            rows.append(parts)
        if not rows:
            return torch.empty(0, 0, dtype=torch.int64)
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)

    def target_parts(self, name: str, problem: Problem, target: Any) -> Tensor:
        """Targets in their natural form, checked, as lists of parts (instances, longest)."""
        shape = tuple(problem.batch_shape) + problem.layout
        if not isinstance(target, Tensor) or tuple(target.shape) != shape:
            got = tuple(target.shape) if isinstance(target, Tensor) else type(target).__name__
            raise FenchelError(
                f"{name}: expected `target` as 0s and 1s of the shape of the scores {shape}, but "
                f"got {got}."
            )
        flat = target.cpu().reshape(len(problem.scores), problem.n_unary)
        if not bool(((flat == 0) | (flat == 1)).all()):
            raise FenchelError(f"{name}: expected 0s and 1s in `target`, but got other values.")
        rows = [row.nonzero().squeeze(1) for row in flat]
        if not rows:
            return torch.empty(0, 0, dtype=torch.int64)
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)

    def to_target(self, problem: Problem, parts: Tensor) -> Tensor:
        """Lists of parts (instances, longest) in the form of targets: undoes ``target_parts``.

        Where a target may hold anything, there is -1.
        """
        return problem.indicator(parts).long().reshape(*problem.batch_shape, *problem.layout)

    def instance(self, scores: Any, problem: Problem, row: int) -> Any:
        """Scores of instance ``row`` of a batch alone, without its padding, in the user's form.

        Here: the first axes of an instance are as long as ``problem.sizes`` says.
        """
        one = scores.reshape(-1, *scores.shape[len(problem.batch_shape) :])[row]
        return one[tuple(slice(size) for size in problem.sizes[row].tolist())]

    def enumerate(self, problem: Problem, row: int = 0) -> Iterator[tuple[int, ...]]:
        """All members of instance ``row`` as lists of parts, whatever their scores; for tests."""
        raise FenchelError(f"{self!r}: listing all members is not implemented for this structure.")

    def smoothed_max(self, problem: Problem, omega: str, gamma: float) -> Tensor:
        """The smoothed maximum (instances), with gradients of every order in the scores."""
        raise FenchelError(self.no_smoothing(omega))

    def smoothed_argmax(self, problem: Problem, omega: str, gamma: float) -> Tensor:
        """Its gradient (instances, parts), with gradients of every order in the scores."""
        raise FenchelError(self.no_smoothing(omega))

    def sample_parts(
        self, problem: Problem, n: int, gamma: float, generator: torch.Generator | None
    ) -> Tensor:
        """Draws from the Gibbs distribution as lists of parts (n, instances, longest)."""
        raise FenchelError(f"{self!r}: drawing samples is not implemented for this structure.")

    def k_best_parts(self, problem: Problem, k: int) -> tuple[Tensor, Tensor]:
        """The k best members (instances, k, longest) and their scores (instances, k)."""
        raise FenchelError(f"{self!r}: a list of the k best is not implemented for this structure.")

    def n_choices(self, problem: Problem, parts: Tensor) -> Tensor:
        """How many smoothed maxima of the dynamic program decide for a member, (instances)."""
        raise FenchelError(self.no_smoothing("l2"))

    def unary(self, means: Any) -> Tensor:
        """The part of means, in the user's form, that a quadratic regularizer sees."""
        return means

    def kind(self, problem: Problem) -> str | None:
        """The name of the oracle in the C++ core that serves a problem, or None."""
        return None

    def infeasible(self, row: int) -> str:
        """The sentence for an instance of a batch that has no structure without a mask."""
        return (
            f"{type(self).__name__}: instance {row} of the batch has no structure with a finite "
            "score; too much is masked."
        )

    def no_smoothing(self, omega: str) -> str:
        """The sentence for a smoothed maximum that is not there."""
        return (
            f"{type(self).__name__}: there is no dynamic program for the smoothing {omega!r}; use "
            "SparseMAP, which needs only the argmax."
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class BuiltIn(Structure):
    """What the structures of this package share: batched oracles with masks and lengths."""

    @outside_graphs
    def argmax(
        self, scores: Any, *, lengths: Tensor | None = None, mask: Tensor | None = None
    ) -> Any:
        """The best structure as 0s and 1s (counts, for parts that can repeat), without a graph.

        Args:
            scores: the parts' scores; ``-inf`` is a mask.
            lengths: sizes of the instances, if they differ.
            mask: boolean, True where a part may be used.
        """
        problem = self.problem(f"{type(self).__name__}.argmax", scores, lengths, mask)
        with torch.no_grad():
            parts = self.best_parts(problem, problem.scores)
            return problem.means(problem.indicator(parts))

    @outside_graphs
    def score(
        self, scores: Any, target: Any, *, lengths: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The scores of given structures, one a batch entry, differentiable.

        Args:
            scores: the parts' scores.
            target: structures in their natural form.
            lengths: sizes of the instances, if they differ.
            mask: boolean, True where a part may be used.
        """
        name = f"{type(self).__name__}.score"
        problem = self.problem(name, scores, lengths, mask)
        return problem.values(problem.score(self.target_parts(name, problem, target)))

    def best_parts(self, problem: Problem, scores: Tensor) -> Tensor:
        kind = self.kind(problem)
        parts = kernels.best_parts(kind, scores.detach(), problem.layout, problem.sizes)
        self._check_feasible((parts[:, :1] == -2).any(1))
        return parts

    def smoothed_max(self, problem: Problem, omega: str, gamma: float) -> Tensor:
        self._check_smoothing(omega)
        kind = self.kind(problem)
        value = smoothed_max(kind, problem.scores, problem.layout, problem.sizes, omega, gamma)
        self._check_feasible(value.detach() == -math.inf)
        return value

    def smoothed_argmax(self, problem: Problem, omega: str, gamma: float) -> Tensor:
        self._check_smoothing(omega)
        kind = self.kind(problem)
        means, value = smoothed_argmax(
            kind, problem.scores, problem.layout, problem.sizes, omega, gamma
        )
        self._check_feasible(value == -math.inf)
        return means

    def sample_parts(
        self, problem: Problem, n: int, gamma: float, generator: torch.Generator | None
    ) -> Tensor:
        kind = self.kind(problem)
        if not kernels.is_known(f"sample.{kind}"):
            return super().sample_parts(problem, n, gamma, generator)
        scores = problem.scores.detach() / gamma
        parts = kernels.sample_parts(kind, scores, problem.layout, problem.sizes, n, generator)
        self._check_feasible((parts[:, :, :1] == -2).any(0).any(1))
        return parts

    def k_best_parts(self, problem: Problem, k: int) -> tuple[Tensor, Tensor]:
        kind = self.kind(problem)
        if not kernels.is_known(f"k_best.{kind}"):
            return super().k_best_parts(problem, k)
        parts, values = kernels.k_best_parts(kind, problem.scores, problem.layout, problem.sizes, k)
        self._check_feasible(values[:, 0] == -math.inf)
        return parts, values

    def _check_smoothing(self, omega: str) -> None:
        if omega not in self.smoothings:
            raise FenchelError(self.no_smoothing(omega))

    def _check_feasible(self, none: Tensor) -> None:
        """Refuse a batch (instances) of which some have no structure with a finite score."""
        if bool(none.any()):
            raise FenchelError(self.infeasible(int(none.long().argmax())))

    @abstractmethod
    def kind(self, problem: Problem) -> str: ...


def check_integers(name: str, target: Any, shape: tuple[int, ...], what: str) -> Tensor:
    """A target of integers, without a graph, int64 on the CPU."""
    fits = isinstance(target, Tensor) and tuple(target.shape) == tuple(shape)
    if not fits or target.is_floating_point() or target.dtype == torch.bool:
        got = type(target).__name__
        if isinstance(target, Tensor):
            got = f"{tuple(target.shape)} of {target.dtype}"
        raise FenchelError(
            f"{name}: expected `target` to hold {what}, an integer tensor of shape {tuple(shape)}, "
            f"but got {got}."
        )
    return target.detach().long().cpu()


def masked(name: str, scores: Tensor, mask: Any) -> Tensor:
    """Scores with -inf where a mask is False."""
    if mask is None:
        return scores
    check_mask(name, mask, scores)
    return scores.masked_fill(~mask, -math.inf)
