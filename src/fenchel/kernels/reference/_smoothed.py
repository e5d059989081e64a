"""From a smoothed maximum in torch ops to all that the table wants of it, by autograd."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fenchel.kernels._table import REFERENCE, implements

Layout = tuple[int, ...]
#: (scores, layout, sizes, omega, gamma) to the smoothed maxima (instances), differentiable.
Value = Callable[[Tensor, Layout, Tensor, str, float], Tensor]
#: (means, layout, sizes) to the means without rounding errors that can be known.
Correction = Callable[[Tensor, Layout, Tensor], Tensor]


def register_smoothed(
    kind: str,
    value: Value,
    correct: Correction | None = None,
    *,
    divide: bool = True,
    alone: bool = False,
) -> None:
    """Enter the dynamic program of a kind of structures into the table.

    Args:
        kind: the structures.
        value: the program.
        correct: rounds the means.
        divide: give the program scores over gamma, and a strength of 1. It then need not know of
            strengths, and the means are those of the program to the last digit.
        alone: no backend is to have a kernel for it.
    """

    def values_of(
        scores: Tensor, layout: Layout, sizes: Tensor, omega: str, gamma: float
    ) -> tuple[Tensor, Tensor]:
        """The smoothed maxima, and the scores by which to differentiate for the means."""
        if not divide or gamma == 1:
            return value(scores, layout, sizes, omega, gamma), scores
        scores = scores / gamma
        return value(scores, layout, sizes, omega, 1.0), scores

    def means_of(
        scores: Tensor, values: Tensor, layout: Layout, sizes: Tensor, graph: bool
    ) -> Tensor:
        (means,) = torch.autograd.grad(values.sum(), scores, create_graph=graph)
        return means if correct is None else correct(means, layout, sizes)

    def undo(values: Tensor, gamma: float) -> Tensor:
        return values * gamma if divide and gamma != 1 else values

    @implements(f"smoothed.{kind}", REFERENCE, alone=alone)
    def smoothed(
        scores: Tensor, layout: Layout, sizes: Tensor, omega: str, gamma: float, with_means: bool
    ) -> tuple[Tensor, Tensor | None]:
        if not with_means:
            with torch.no_grad():
                return undo(values_of(scores, layout, sizes, omega, gamma)[0], gamma), None
        with torch.inference_mode(False), torch.enable_grad():
            leaf = scores.detach().clone().requires_grad_()
            values, inner = values_of(leaf, layout, sizes, omega, gamma)
            means = means_of(inner, values, layout, sizes, False)
        return undo(values.detach(), gamma), means

    @implements(f"product.{kind}", REFERENCE, alone=alone)
    def product(
        scores: Tensor,
        directions: Tensor,
        layout: Layout,
        sizes: Tensor,
        omega: str,
        gamma: float,
    ) -> Tensor:
        """Differentiable where grad mode is on."""
        graph = torch.is_grad_enabled()
        with torch.inference_mode(False), torch.enable_grad():
            leaf = scores
            if not (graph and scores.requires_grad):
                leaf = scores.detach().clone().requires_grad_()
            values, inner = values_of(leaf, layout, sizes, omega, gamma)
            means = means_of(inner, values, layout, sizes, True)
            if not means.requires_grad:  # one structure only: the value is linear
                return torch.zeros_like(scores)
            (out,) = torch.autograd.grad(means, leaf, directions, create_graph=graph)
        return out
