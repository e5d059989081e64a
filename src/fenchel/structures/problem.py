"""A batch of instances of a structure in one flat form, which solvers and regularizers see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fenchel import kernels
from fenchel._checks import FenchelError, refuse_transforms


@dataclass(frozen=True)
class Problem:
    """Scores of all parts of each instance, flat, and the way back to the user's form.

    Attributes:
        scores: (instances, parts), float64 on the CPU, with its graph. ``-inf`` is a part that must
            not be used; padding is 0, and no structure has a part there.
        n_unary: the first so many parts are those that a quadratic regularizer sees.
        sizes: (instances, k) int64: the sizes of each instance, in the structure's own words.
        layout: numbers that all instances share, in the structure's own words.
        batch_shape: the axes of the batch as the user gave them.
        dtype: of the user's scores.
        device: of the user's scores.
        restore: (instances, parts) in the user's dtype and on the user's device to the user's form.
    """

    scores: Tensor
    n_unary: int
    sizes: Tensor
    layout: tuple[int, ...]
    batch_shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    restore: Callable[[Tensor], Any]

    def means(self, parts: Tensor) -> Any:
        """Means (instances, parts) in the form, dtype and device of the user's scores."""
        return self.restore(parts.to(self.device, self.dtype))

    def values(self, rows: Tensor) -> Tensor:
        """One number an instance, (instances), as the user expects it: (*batch)."""
        return rows.to(self.device, self.dtype).reshape(self.batch_shape)

    def indicator(self, parts: Tensor) -> Tensor:
        """Structures as lists of parts (instances, any), -1 for none, as vectors of counts."""
        counts = self.scores.new_zeros(parts.shape[0], self.scores.shape[1] + 1)
        last = torch.where(parts < 0, self.scores.shape[1], parts)
        return counts.scatter_add(1, last, torch.ones_like(last, dtype=counts.dtype))[:, :-1]

    def score(self, parts: Tensor) -> Tensor:
        """The score (instances) of a structure each, given as a list of parts; differentiable."""
        inside = parts >= 0
        if bool(inside.all()):  # most often; saves four passes
            return self.scores.gather(1, parts).sum(1)
        return torch.where(inside, self.scores.gather(1, parts.clamp(min=0)), 0.0).sum(1)


@dataclass(frozen=True)
class Shaped:
    """The way back to scores that are one tensor. Unlike a lambda it can be pickled."""

    shape: torch.Size

    def __call__(self, means: Tensor) -> Tensor:
        return means.reshape(self.shape)


def to_flat(x: Tensor) -> Tensor:
    """A tensor as the solvers want it: float64 on the CPU."""
    refuse_unreadable(x)
    return kernels.unwrapped(x).to("cpu", torch.float64)


def refuse_unreadable(*tensors: Tensor) -> None:
    """Refuse what a solver cannot work on: it reads values, and no graph of torch ops holds it."""
    if kernels.is_plain(*tensors):  # most are
        return
    for x in tensors:
        if x.is_meta:
            raise FenchelError("structures: expected tensors with values, but got one on `meta`.")
    refuse_transforms("structures", _REASON)
    if kernels.is_captured():
        raise FenchelError(
            f"structures: expected no tracing and no fake tensors, because {_REASON}."
        )
    for x in tensors:
        if not kernels.have_memory(kernels.unwrapped(x)):
            what = f"a {type(x).__name__}" if type(x) is not Tensor else "a batched tensor"
            raise FenchelError(
                f"structures: expected plain tensors, but got {what}, because {_REASON}."
            )


_REASON = (
    "their solvers read values; they take batches as they are, and torch.autograd has their "
    "gradients"
)


def check_values(name: str, scores: Tensor) -> None:
    """Refuse scores (instances, parts) that are NaN or +inf; ``-inf`` is a mask."""
    values = scores.detach()
    if values.numel() > 0 and not bool(values.amax() < torch.inf):  # one pass; NaN is not below
        wrong = values.isnan() | (values == torch.inf)
        row = int(wrong.any(1).long().argmax())
        what = "NaN" if bool(values[row].isnan().any()) else "+inf"
        raise FenchelError(
            f"{name}: expected finite scores (or -inf, a mask), but instance {row} of the batch "
            f"has {what}."
        )
