"""Dynamic programs on chains: which backend runs. All of them have temperature 1.

``scores`` are (instances, parts), float64 on the CPU; ``layout`` and ``sizes`` (instances, 1) are
those of the structure ``Sequence``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fenchel.kernels import _native_sequence, reference
from fenchel.kernels._dispatch import choose_backend


def sequence_smoothed(
    omega: str, scores: Tensor, layout: tuple[int, ...], sizes: Tensor, with_means: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Smoothed maxima (instances), -inf where there is no sequence, and maybe their gradients."""
    scores = scores.detach()
    if choose_backend(scores) == "native":
        return _native_sequence.smoothed(omega, scores, layout, sizes, with_means)
    if not with_means:
        return reference.sequence_value(omega, scores, layout, sizes), None
    with torch.inference_mode(False), torch.enable_grad():
        leaf = scores.clone().requires_grad_()
        values = reference.sequence_value(omega, leaf, layout, sizes)
        (means,) = torch.autograd.grad(values.sum(), leaf)
    return values.detach(), means


def sequence_product(
    omega: str, scores: Tensor, direction: Tensor, layout: tuple[int, ...], sizes: Tensor
) -> Tensor:
    """Hessians of the smoothed maxima times directions (instances, parts), without a graph."""
    scores, direction = scores.detach(), direction.detach()
    if choose_backend(scores) == "native":
        return _native_sequence.product(omega, scores, direction, layout, sizes)
    with torch.inference_mode(False), torch.enable_grad():
        leaf = scores.clone().requires_grad_()
        return reference.sequence_product(omega, leaf, direction, layout, sizes).detach()


def sequence_sample(
    scores: Tensor, layout: tuple[int, ...], sizes: Tensor, uniform: Tensor
) -> Tensor:
    """Random sequences as lists of parts (n, instances, longest), from uniform (n, instances, T).

    Where there is no sequence, the list begins with -2.
    """
    scores = scores.detach()
    if choose_backend(scores) == "native":
        return _native_sequence.sample(scores, layout, sizes, uniform)
    return reference.sequence_sample(scores, layout, sizes, uniform)


def sequence_k_best(
    scores: Tensor, layout: tuple[int, ...], sizes: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The k best as lists of parts (instances, k, longest), and their scores (instances, k).

    Where there are fewer, the parts are -1 and the scores -inf.
    """
    scores = scores.detach()
    if choose_backend(scores) == "native":
        return _native_sequence.k_best(scores, layout, sizes, k)
    return reference.sequence_k_best(scores, layout, sizes, k)
