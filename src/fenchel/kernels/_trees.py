"""Which sums over dependency trees run: projective or not x backend."""

from __future__ import annotations

import torch
from torch import Tensor

from fenchel.kernels import _native_tree, reference
from fenchel.kernels._dispatch import choose_backend


def tree_log_partition(
    projective: bool, scores: Tensor, layout: tuple[int, ...], sizes: Tensor
) -> Tensor:
    """The log-partition (instances) over dependency trees; ``-inf`` where there is none.

    Args:
        projective: whether only projective trees count.
        scores: (instances, n * (n + 1)), float64 on the CPU.
        layout: n, and 1 for a single root.
        sizes: (instances, 1) int64, the number of words.
    """
    if choose_backend(scores) == "native":
        return _native_tree.tree_log_partition(projective, scores.detach(), layout, sizes)
    return tree_log_partition_ops(projective, scores.detach(), layout, sizes)


def tree_marginals(
    projective: bool,
    scores: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    direction: Tensor | None = None,
) -> Tensor:
    """Its gradient (instances, parts), or the derivative of that along a direction.

    Zero where there is no tree. Arguments are those of :func:`tree_log_partition`, and a direction
    (instances, parts) or None.
    """
    if choose_backend(scores) == "native":
        return _native_tree.tree_marginals(projective, scores.detach(), layout, sizes, direction)[1]
    return _by_autograd(projective, scores, layout, sizes, direction)[1]


def tree_sums(
    projective: bool, scores: Tensor, layout: tuple[int, ...], sizes: Tensor
) -> tuple[Tensor, Tensor]:
    """The log-partition and the marginals in one go."""
    if choose_backend(scores) == "native":
        return _native_tree.tree_marginals(projective, scores.detach(), layout, sizes)
    return _by_autograd(projective, scores, layout, sizes, None)


def _by_autograd(
    projective: bool,
    scores: Tensor,
    layout: tuple[int, ...],
    sizes: Tensor,
    direction: Tensor | None,
) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(False), torch.enable_grad():
        known = scores.detach().clone().requires_grad_()
        value = tree_log_partition_ops(projective, known, layout, sizes)
        (mean,) = torch.autograd.grad(value.sum(), known, create_graph=direction is not None)
        if direction is not None:
            (mean,) = torch.autograd.grad(mean, known, direction)
    return value.detach(), mean.detach()


def tree_log_partition_ops(
    projective: bool, scores: Tensor, layout: tuple[int, ...], sizes: Tensor
) -> Tensor:
    """The log-partition in torch ops, with gradients of every order."""
    if projective:
        return reference.projective_tree_log_partition(scores, layout, sizes)
    return reference.tree_log_partition(scores, layout, sizes)
