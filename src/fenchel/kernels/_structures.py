"""Which oracle runs: a table structure x backend."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from fenchel.kernels import _native_active_set, _native_structures, reference
from fenchel.kernels._dispatch import choose_backend
from fenchel.kernels._faces import Faces

_ORACLES: dict[str, Callable[[Tensor, tuple[int, ...], Tensor], Tensor]] = {
    "alignment": reference.alignment_best_parts,
    "assignment": reference.assignment_best_parts,
    "k_subsets": reference.k_subsets_best_parts,
    "projective_tree": reference.projective_tree_best_parts,
    "sequence": reference.sequence_best_parts,
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
        Lists of parts, with -1 in the places that are left; -2 in the first place where no
        structure has a finite score.
    """
    if choose_backend(scores) == "native":
        return _native_structures.best_parts(kind, scores, layout, sizes)
    return _ORACLES[kind](scores, layout, sizes)


def active_set(
    kind: str,
    scores: Tensor,
    n_unary: int,
    layout: tuple[int, ...],
    sizes: Tensor,
    max_iter: int,
    tol: float,
    complete: bool,
) -> Faces | None:
    """SparseMAP of each instance with an oracle of the native core, or None without the core.

    Args:
        kind: the name of the oracle.
        scores: (instances, parts), float64 on the CPU.
        n_unary: the first so many parts have a quadratic term.
        layout: what all instances share.
        sizes: (instances, k) int64.
        max_iter: the most members that may enter.
        tol: the gap that is small enough, relative to the size of the scores.
        complete: whether members of weight 0 follow until they span the whole face, which its
            derivative needs.
    """
    if choose_backend(scores) != "native":
        return None
    return _native_active_set.active_set(
        kind, scores, n_unary, layout, sizes, max_iter, tol, complete
    )


def face_product(lists: Tensor, matrix: Tensor, x: Tensor) -> Tensor:
    """How the means of each instance move on its face when the scores move by ``x``.

    Args:
        lists: (instances, members, longest) int32, the members as lists of parts, -1 for none.
        matrix: (instances, members, members), the weights' derivative in the members' scores.
        x: (instances, parts), float64 on the CPU.
    """
    if choose_backend(x) == "native":
        return _native_active_set.face_product(lists, matrix, x)
    return reference.face_product(lists, matrix, x)
