"""Dependency trees on the C++ core: oracles, and sums in float64."""

from __future__ import annotations

from ctypes import c_int, c_int64

import torch
from torch import Tensor

from fenchel.kernels._table import implements
from fenchel.kernels.native._backend import NATIVE
from fenchel.kernels.native._door import NativeFunction, empty, readable
from fenchel.kernels.native._structures import layout_numbers, over

_F, _I = torch.float64, torch.int64
_tree_sums = NativeFunction("tree_sums", [c_int, _F, _F, c_int64, c_int64, _I, _I, _F, _F])


def register_trees(kind: str, projective: bool) -> None:
    """Enter the trees of a kind into the table."""

    @implements(f"smoothed.{kind}", NATIVE)
    def smoothed(
        scores: Tensor,
        layout: tuple[int, ...],
        sizes: Tensor,
        omega: str,
        gamma: float,
        with_means: bool,
    ) -> tuple[Tensor, Tensor | None]:
        values = empty((scores.shape[0],), torch.float64)
        means = empty(scores.shape, torch.float64) if with_means else None
        run(over(scores, gamma), None, layout, sizes, values, means)
        return values if gamma == 1 else values * gamma, means

    @implements(f"product.{kind}", NATIVE)
    def product(
        scores: Tensor,
        directions: Tensor,
        layout: tuple[int, ...],
        sizes: Tensor,
        omega: str,
        gamma: float,
    ) -> Tensor:
        values = empty((scores.shape[0],), torch.float64)
        out = empty(scores.shape, torch.float64)
        run(over(scores, gamma), over(directions, gamma), layout, sizes, values, out)
        return out

    def run(
        scores: Tensor,
        directions: Tensor | None,
        layout: tuple[int, ...],
        sizes: Tensor,
        values: Tensor,
        out: Tensor | None,
    ) -> None:
        _tree_sums(
            projective,
            readable(scores),
            None if directions is None else readable(directions),
            *scores.shape,
            layout_numbers(layout),
            readable(sizes),
            values,
            out,
        )


register_trees("tree", False)
register_trees("projective_tree", True)
