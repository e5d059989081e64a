"""Which oracle runs: a table structure x backend."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from fenchel.kernels import _native_structures, reference
from fenchel.kernels._dispatch import choose_backend

_ORACLES: dict[str, Callable[[Tensor, tuple[int, ...], Tensor], Tensor]] = {
    "k_subsets": reference.k_subsets_best_parts,
    "projective_tree": reference.projective_tree_best_parts,
    "tree": reference.tree_best_parts,
}


def best_parts(kind: str, scores: Tensor, layout: tuple[int, ...], sizes: Tensor) -> Tensor:
    """The best structure of each instance as a list of parts (instances, longest), int64.

    Args:
        kind: the name of the oracle.
        scores: (instances, parts), float64 on the CPU.
        layout: what all instances share.
        sizes: (instances, k) int64.

    Returns:
        Lists of parts, with -1 in the places that are left; -2 in the first place where no structure
        has a finite score.
    """
    if choose_backend(scores) == "native":
        return _native_structures.best_parts(kind, scores, layout, sizes)
    return _ORACLES[kind](scores, layout, sizes)
