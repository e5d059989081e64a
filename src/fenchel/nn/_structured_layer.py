from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fenchel._checks import FenchelError, check_positive
from fenchel.losses import fenchel_young_loss
from fenchel.regularizers import MAP, Marginals, SmoothedDP, SparseMAP, StructuredRegularizer
from fenchel.structures import Alignment, Assignment, DependencyTree, Structure

_CHOICES = ("sparsemap", "marginals", "smoothed_dp", "map")


class StructuredLayer(torch.nn.Module):
    r"""Scores in, mean structure out, and the loss that goes with it.

    Args:
        structure: what to choose from.
        omega: how: ``"sparsemap"`` (a mean of few structures), ``"marginals"`` (of all, by their
            probability), ``"smoothed_dp"`` (sparse and cheap, for sequences and alignments) or
            ``"map"`` (the best; no gradient).
        gamma: how strong the regularizer is: the temperature of the marginals, how smooth the
            dynamic program is, how dense SparseMAP. A number above 0; ``"map"`` has no use for it.
    """

    def __init__(self, structure: Structure, omega: str = "sparsemap", gamma: float = 1.0) -> None:
        super().__init__()
        name = f"nn.{type(self).__name__}"
        self.gamma = check_positive(name, "gamma", gamma, 1e300, "a finite number above 0")
        self.omega = _regularizer(name, structure, omega, self.gamma)
        self._choice = omega

    def forward(
        self, scores: Tensor, lengths: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The mean structure, in the shape of ``scores``.

        Args:
            scores: the parts' scores; ``-inf`` is a mask.
            lengths: sizes of the instances, if they differ.
            mask: boolean, True where a part may be used.
        """
        return self.omega.predict(self._scores(scores), lengths=lengths, mask=mask)

    def loss(
        self,
        scores: Tensor,
        target: Tensor,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
        cost: float | Tensor | None = None,
        reduction: str = "mean",
    ) -> Tensor:
        """The Fenchel-Young loss against structures in their natural form.

        Args:
            scores: the parts' scores; ``-inf`` is a mask.
            target: structures: heads, columns, paths, tags.
            lengths: sizes of the instances, if they differ.
            mask: boolean, True where a part may be used.
            cost: what a wrong part costs; makes the loss cost-augmented.
            reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        """
        return fenchel_young_loss(
            self._scores(scores),
            target,
            self.omega,
            lengths=lengths,
            mask=mask,
            cost=cost,
            reduction=reduction,
        )

    def _scores(self, scores: Tensor) -> Any:
        """What the regularizer is given."""
        return scores

    def extra_repr(self) -> str:
        return f"{self.omega.structure!r}, {self._choice!r}, gamma={self.gamma!r}"


class TreeLayer(StructuredLayer):
    """Arc scores (*batch, n, n + 1) to a mean dependency tree of the same shape.

    Row = word, column = head, column 0 the root. See :class:`fenchel.DependencyTree`.

    Args:
        omega: ``"sparsemap"``, ``"marginals"`` or ``"map"``.
        gamma: the temperature, a number above 0.
        single_root: whether exactly one word hangs on the root.
        projective: whether arcs must not cross.

    Example:
        >>> fy.nn.TreeLayer("marginals")(torch.zeros(2, 3))
        tensor([[0.5000, 0.0000, 0.5000],
                [0.5000, 0.5000, 0.0000]])
    """

    def __init__(
        self,
        omega: str = "sparsemap",
        gamma: float = 1.0,
        *,
        single_root: bool = True,
        projective: bool = False,
    ) -> None:
        super().__init__(DependencyTree(single_root, projective), omega, gamma)


class MatchingLayer(StructuredLayer):
    """Scores (*batch, n, m) to a mean assignment of the same shape.

    See :class:`fenchel.Assignment`; there are no marginals for it.

    Args:
        omega: ``"sparsemap"`` or ``"map"``.
        gamma: the temperature, a number above 0.

    Example:
        >>> fy.nn.MatchingLayer()(torch.tensor([[1.0, 0.8], [0.9, 0.9]]))
        tensor([[0.5500, 0.4500],
                [0.4500, 0.5500]])
    """

    def __init__(self, omega: str = "sparsemap", gamma: float = 1.0) -> None:
        super().__init__(Assignment(), omega, gamma)


class AlignmentLayer(StructuredLayer):
    """Scores (*batch, m, n) to a mean monotonic alignment of the same shape.

    See :class:`fenchel.Alignment`.

    Args:
        omega: ``"sparsemap"``, ``"marginals"``, ``"smoothed_dp"`` or ``"map"``.
        gamma: the temperature, a number above 0.
        band: how far from the diagonal a path may go, if it is limited.

    Example:
        >>> fy.nn.AlignmentLayer("marginals")(torch.zeros(2, 2))
        tensor([[1.0000, 0.3333],
                [0.3333, 1.0000]])
    """

    def __init__(
        self, omega: str = "sparsemap", gamma: float = 1.0, *, band: float | None = None
    ) -> None:
        super().__init__(Alignment(band), omega, gamma)


def _regularizer(
    name: str, structure: Structure, omega: str, gamma: float
) -> StructuredRegularizer:
    if omega == "sparsemap":
        return SparseMAP(structure, gamma)
    if omega == "marginals":
        return Marginals(structure, gamma)
    if omega == "smoothed_dp":
        return SmoothedDP(structure, "l2", gamma)
    if omega == "map":
        return MAP(structure)
    known = ", ".join(repr(choice) for choice in _CHOICES)
    raise FenchelError(f"{name}: expected `omega` to be one of {known}, but got {omega!r}.")
