from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import FenchelError, check_scores
from fenchel.structures._sizes import check_sizes
from fenchel.structures._structure import BuiltIn, check_integers, masked
from fenchel.structures.problem import Problem, Shaped, check_values, to_flat

_FARTHEST = 1e15  # weights are exp(score), with exponents that are whole up to 2**53


class DependencyTree(BuiltIn):
    r"""Dependency trees of a sentence: every word has one head, and all paths lead to the root.

    .. math:: \mathcal Y = \{ y \in \{0, 1\}^{n \times (n + 1)} :
        \textstyle\sum_h y_{mh} = 1, \text{ no cycles} \}

    Scores are (*batch, n, n + 1) and so are means: the row is the word, the column its head, column
    0 the root and column j + 1 word j. A word's own column is ignored, whatever it holds: its mean
    is 0. ``lengths`` (*batch) are numbers of words; column 0 and as many columns after it count.
    A target is a list of heads (*batch, n), 0 being the root; padding may hold anything.

    The best tree is found by contracting cycles (Chu & Liu, Edmonds) in :math:`O(n^2)`, and the sum
    over all trees by eliminating words from the Laplacian of the matrix-tree theorem without a
    subtraction, in :math:`O(n^3)`; both exactly, for one root or several. Projective trees have
    Eisner's dynamic program, in :math:`O(n^3)`.

    To compare with the non-projective trees of ``vene/sparsemap``, set ``single_root=False``: there
    several words may hang on the root.

    Args:
        single_root: exactly one word hangs on the root; else one or more.
        projective: no two arcs cross when the root stands left of the words.

    Example:
        >>> scores = torch.tensor([[1.0, 0, 2, 0], [0.5, 3, 0, 1], [2.0, 0, 1.5, 0]])
        >>> DependencyTree().argmax(scores)  # the first word is the root, 2 hangs on 1, 3 on 2
        tensor([[1., 0., 0., 0.],
                [0., 1., 0., 0.],
                [0., 0., 1., 0.]])
        >>> DependencyTree(single_root=False).argmax(scores)
        tensor([[1., 0., 0., 0.],
                [0., 1., 0., 0.],
                [1., 0., 0., 0.]])

    References:
        McDonald, Pereira, Ribarov & Hajič. Non-projective Dependency Parsing using Spanning Tree
        Algorithms. EMNLP 2005. Koo, Globerson, Carreras & Collins. Structured Prediction Models via
        the Matrix-Tree Theorem. EMNLP 2007. Eisner. Three New Probabilistic Models for Dependency
        Parsing. COLING 1996.
    """

    event_dim = 2
    smoothings = ("entropy",)

    def __init__(self, single_root: bool = True, projective: bool = False) -> None:
        for name, value in (("single_root", single_root), ("projective", projective)):
            if not isinstance(value, bool):
                raise FenchelError(
                    f"DependencyTree: `{name}` must be True or False; got {value!r}."
                )
        self.single_root = single_root
        self.projective = projective

    def enumerate(self, problem: Problem, row: int = 0) -> Iterator[tuple[int, ...]]:
        """All trees of instance ``row`` as lists of parts, which are word * (n + 1) + head."""
        words, n = int(problem.sizes[row]), problem.layout[0]
        for heads in itertools.product(range(words + 1), repeat=words):
            if _wrong(torch.tensor([heads]), self.single_root, self.projective) is None:
                yield tuple(word * (n + 1) + head for word, head in enumerate(heads))

    def __repr__(self) -> str:
        return f"DependencyTree(single_root={self.single_root}, projective={self.projective})"

    def problem(self, name: str, scores: Any, lengths: Any = None, mask: Any = None) -> Problem:
        check_scores(name, scores, -1)
        if scores.dim() < 2 or scores.shape[-1] != scores.shape[-2] + 1 or scores.shape[-2] < 1:
            raise FenchelError(
                f"{name}: expected `scores` of shape (*batch, n, n + 1), a row a word and a column "
                f"a head with the root first, but got {tuple(scores.shape)}."
            )
        n = scores.shape[-2]
        batch_shape = scores.shape[:-2]
        sizes = check_sizes(name, lengths, batch_shape, (n,))
        cube = to_flat(masked(name, scores, mask)).reshape(-1, n, n + 1)
        inside = _others(n) if lengths is None else _arcs(n, sizes)
        cube = torch.where(inside, cube, 0.0)  # the rest may hold anything
        flat = cube.reshape(-1, n * (n + 1))
        if not bool(flat.detach().sum().isfinite()):  # else there is nothing to find
            check_values(name, flat)
            _check_heads(name, cube.detach(), inside)
        return Problem(
            scores=flat,
            n_unary=n * (n + 1),
            sizes=sizes,
            layout=(n, int(self.single_root)),
            batch_shape=batch_shape,
            dtype=scores.dtype,
            device=scores.device,
            restore=Shaped(scores.shape),
        )

    def target_parts(self, name: str, problem: Problem, target: Any) -> Tensor:
        n = problem.layout[0]
        what = "the head of every word (0 is the root)"
        heads = check_integers(name, target, (*problem.batch_shape, n), what).reshape(-1, n)
        words = torch.arange(n)
        inside = words < problem.sizes
        if bool((inside & ((heads < 0) | (heads > problem.sizes))).any()):
            raise FenchelError(
                f"{name}: expected heads between 0 (the root) and the number of words in `target`, "
                "but one is out of range."
            )
        # Padding as a row of words, each on the one before: it adds no root, cycle or crossing.
        heads = torch.where(inside, heads, words)
        wrong = _wrong(heads, self.single_root, self.projective)
        if wrong is not None:
            raise FenchelError(f"{name}: expected `target` to hold trees of {self!r}, but {wrong}.")
        return torch.where(inside, words * (n + 1) + heads, -1)

    def to_target(self, problem: Problem, parts: Tensor) -> Tensor:
        n = problem.layout[0]
        cells = problem.indicator(parts).reshape(-1, n, n + 1)
        return torch.where(cells.any(2), cells.argmax(2), -1).reshape(*problem.batch_shape, n)

    def instance(self, scores: Any, problem: Problem, row: int) -> Any:
        return super().instance(scores, problem, row)[:, : int(problem.sizes[row]) + 1]

    def smoothed_max(self, problem: Problem, omega: str, gamma: float) -> Tensor:
        self._check_distances(problem, gamma)
        return super().smoothed_max(problem, omega, gamma)

    def smoothed_argmax(self, problem: Problem, omega: str, gamma: float) -> Tensor:
        self._check_distances(problem, gamma)
        return super().smoothed_argmax(problem, omega, gamma)

    def sample_parts(
        self, problem: Problem, n: int, gamma: float, generator: torch.Generator | None
    ) -> Tensor:
        self._check_distances(problem, gamma)
        return super().sample_parts(problem, n, gamma, generator)

    def kind(self, problem: Problem) -> str:
        return "projective_tree" if self.projective else "tree"

    def _check_distances(self, problem: Problem, gamma: float) -> None:
        """Refuse scores over gamma that a sum of weights could not tell apart.

        Weights are relative to the best head of each word. What is far below matters only where
        the trees need it.
        """
        known = problem.scores.detach()
        if known.numel() == 0:
            return
        low, high = known.aminmax()
        farthest = _FARTHEST * gamma
        if float(low) >= -farthest and float(high) <= farthest:
            return
        known = known / gamma
        if bool((torch.where(known > -math.inf, known, 0.0).abs() <= _FARTHEST).all()):
            return
        n = problem.layout[0]
        top = known.reshape(-1, n, n + 1).amax(2)
        top = torch.where(top > -math.inf, top, 0.0)
        value, _ = kernels.smoothed(
            self.kind(problem), known, problem.layout, problem.sizes, "entropy", 1.0, False
        )
        far = ~((top.sum(1) - value).abs() <= _FARTHEST) & (value != -math.inf)
        far = far | (top.abs() > _FARTHEST).any(1)
        if bool(far.any()):
            row = int(far.long().argmax())
            raise FenchelError(
                f"{self!r}: expected scores up to {_FARTHEST:g} for a sum over all trees (far "
                f"lower ones only where no tree needs them), but instance {row} of the batch has "
                "others; use `fy.MAP` or a higher `gamma`."
            )

    def infeasible(self, row: int) -> str:
        return (
            f"{self!r}: instance {row} of the batch has no tree with a finite score; too much is "
            "masked."
        )


@lru_cache(maxsize=128)
def _others(n: int) -> Tensor:
    """Where (1, n, n + 1) arcs are that lead from a word to another one.

    Kept, because it costs as much as the best tree of a short sentence.
    """
    with torch.inference_mode(False):
        words, heads = torch.arange(n, device="cpu").unsqueeze(1), torch.arange(n + 1, device="cpu")
        return (heads != words + 1).unsqueeze(0)


def _arcs(n: int, sizes: Tensor) -> Tensor:
    """The same (instances, n, n + 1) inside the lengths."""
    words, heads = torch.arange(n).unsqueeze(1), torch.arange(n + 1)
    return _others(n) & (words < sizes.unsqueeze(2)) & (heads <= sizes.unsqueeze(2))


def _check_heads(name: str, scores: Tensor, inside: Tensor) -> None:
    """Refuse (instances, n, n + 1) scores with a word that has no finite head."""
    headless = ~((scores > -math.inf) & inside).any(2) & inside.any(2)
    if bool(headless.any()):
        row = int(headless.any(1).long().argmax())
        raise FenchelError(
            f"{name}: expected a finite score for at least one head of every word, but word "
            f"{int(headless[row].long().argmax())} of instance {row} of the batch has none."
        )


def _wrong(heads: Tensor, single_root: bool, projective: bool) -> str | None:
    """What keeps heads (instances, n) from being trees, or None."""
    count, n = heads.shape
    tokens = torch.arange(1, n + 1)
    above = torch.cat((heads.new_zeros(count, 1), heads), 1)
    for _ in range(n.bit_length()):  # the head's head, four up, eight up ...
        above = above.gather(1, above)
    if bool((above > 0).any()):
        return "one has a cycle"
    if single_root and bool(((heads == 0).sum(1) != 1).any()):
        return "one has several roots"
    if projective:
        low, high = torch.minimum(heads, tokens), torch.maximum(heads, tokens)
        a_low, a_high, b_low, b_high = (
            low.unsqueeze(1),
            high.unsqueeze(1),
            low.unsqueeze(2),
            high.unsqueeze(2),
        )
        if bool(((a_low < b_low) & (b_low < a_high) & (a_high < b_high)).any()):
            return "arcs of one cross"
    return None
