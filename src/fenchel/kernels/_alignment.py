"""Which kernel of smoothed alignments runs."""

from __future__ import annotations

import torch
from torch import Tensor

from fenchel.kernels import _native_alignment, reference
from fenchel.kernels._dispatch import choose_backend


def alignment_smoothed(
    scores: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    omega: str,
    gamma: float,
    *,
    with_gradient: bool,
) -> tuple[Tensor, Tensor | None]:
    """Smoothed maxima (instances) over alignments and, if wanted, their gradients; no graph.

    Args:
        scores: (instances, m * n), float64 on the CPU.
        layout: m, n.
        sizes: (instances, 2) int64, rows and columns.
        omega: "entropy" or "l2".
        gamma: the strength of the smoothing.
        with_gradient: whether the gradients (instances, m * n) are wanted; otherwise None.
    """
    scores = scores.detach()
    if choose_backend(scores) == "native":
        return _native_alignment.smoothed(scores, layout, sizes, omega, gamma, with_gradient)
    with torch.no_grad():
        values = reference.alignment_max(scores, layout, sizes, omega, gamma)
    if not with_gradient:
        return values, None
    return values, reference.alignment_argmax(scores, layout, sizes, omega, gamma).detach()


def alignment_product(
    scores: Tensor,
    directions: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    omega: str,
    gamma: float,
) -> Tensor:
    """The Hessians of the smoothed maxima times directions (instances, m * n); no graph."""
    scores = scores.detach()
    if choose_backend(scores) == "native":
        return _native_alignment.product(scores, directions, layout, sizes, omega, gamma)
    with torch.no_grad():
        return reference.alignment_product(scores, directions, layout, sizes, omega, gamma)
