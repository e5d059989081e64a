"""The ops that all backends share, as the rooms above call them: what goes in, what comes out.

The names in the table are those of the maps (``entmax``), of what belongs to one
(``entmax.backward``, ``entmax.sparse``, ``entmax.loss``), and of what a structure needs, by its
kind (``oracle.tree``, ``smoothed.tree``, ``product.tree``, ``active_set.tree``).

Scores of structures are (instances, parts), float64 on the CPU; ``layout`` is what all instances
share, ``sizes`` (instances, k) int64 what they do not. Lists of parts have -1 in the places that
are left, and -2 in the first place where no structure has a finite score.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fenchel.kernels._faces import Faces
from fenchel.kernels._table import definition, find, kernel_for

Layout = tuple[int, ...]


def run(op: str, x: Tensor, parameter: float | Tensor, dim: int) -> Tensor:
    """Run the map ``op`` on ``x`` along ``dim``; the result is contiguous."""
    function = definition(op) if torch.compiler.is_compiling() else find(op, x)
    p: Tensor = function(x, parameter, dim)
    return p


def run_sparse(
    op: str, x: Tensor, parameter: float | Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The nonzeros of ``op`` along the last axis: (indices, values, sizes, threshold)."""
    indices, values, sizes, threshold = find(f"{op}.sparse", x)(x, parameter)
    return indices, values, sizes, threshold


def run_groups(
    op: str, x: Tensor, lam: float | Tensor, with_slope: bool = True
) -> tuple[Tensor, Tensor, Tensor | None]:
    """``op`` along the last axis, the group of each entry that has mass (-1 for the others), and
    its level's slope in ``lam`` (if it is not wanted, maybe None)."""
    p, group, slope = find(op, x)(x, lam, with_slope)
    return p, group, slope


def best_parts(kind: str, scores: Tensor, layout: Layout, sizes: Tensor) -> Tensor:
    """The best structure of each instance as a list of parts (instances, longest), int64."""
    parts: Tensor = find(f"oracle.{kind}", scores)(scores, layout, sizes)
    return parts


def active_set(
    kind: str,
    scores: Tensor,
    n_unary: int,
    layout: Layout,
    sizes: Tensor,
    max_iter: int,
    tol: float,
    complete: bool,
) -> Faces | None:
    """SparseMAP of each instance with an oracle of a backend, or None where none has it.

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
    kernel = kernel_for(f"active_set.{kind}", scores)
    if kernel is None:
        return None
    faces: Faces = kernel(scores, n_unary, layout, sizes, max_iter, tol, complete)
    return faces


def face_product(lists: Tensor, matrix: Tensor, x: Tensor) -> Tensor:
    """How the means of each instance move on its face when the scores move by ``x``.

    Args:
        lists: (instances, members, longest) int32, the members as lists of parts, -1 for none.
        matrix: (instances, members, members), the weights' derivative in the members' scores.
        x: (instances, parts), float64 on the CPU.
    """
    product: Tensor = find("face_product", x)(lists, matrix, x)
    return product


def smoothed(
    kind: str,
    scores: Tensor,
    layout: Layout,
    sizes: Tensor,
    omega: str,
    gamma: float,
    with_means: bool,
) -> tuple[Tensor, Tensor | None]:
    """Smoothed maxima (instances) over the structures of a kind, and maybe their gradients.

    Without a graph. Where there is no structure, the value is -inf and the gradient 0.

    Args:
        kind: the name of the dynamic program.
        scores: (instances, parts), float64 on the CPU.
        layout: what all instances share.
        sizes: (instances, k) int64.
        omega: "entropy" or "l2".
        gamma: the strength of the smoothing.
        with_means: whether the gradients (instances, parts) are wanted; otherwise None.
    """
    function = find(f"smoothed.{kind}", scores)
    values, means = function(scores.detach(), layout, sizes, omega, gamma, with_means)
    return values, means


def smoothed_product(
    kind: str,
    scores: Tensor,
    directions: Tensor,
    layout: Layout,
    sizes: Tensor,
    omega: str,
    gamma: float,
    with_graph: bool = False,
) -> Tensor:
    """The Hessians of the smoothed maxima times directions (instances, parts).

    With a graph it is that of the reference: a further derivative can follow.
    """
    op = f"product.{kind}"
    if with_graph:
        graph: Tensor = definition(op)(scores, directions, layout, sizes, omega, gamma)
        return graph
    function = find(op, scores)
    product: Tensor = function(scores.detach(), directions.detach(), layout, sizes, omega, gamma)
    return product.detach()


def sample_parts(
    kind: str,
    scores: Tensor,
    layout: Layout,
    sizes: Tensor,
    n: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Random structures as lists of parts (n, instances, longest), p(y) ~ exp(score).

    Args:
        kind: the name of the dynamic program.
        scores: (instances, parts), float64 on the CPU.
        layout: what all instances share.
        sizes: (instances, k) int64.
        n: how many of each instance.
        generator: where the random numbers come from.
    """
    function = find(f"sample.{kind}", scores)
    parts: Tensor = function(scores.detach(), layout, sizes, n, generator)
    return parts


def k_best_parts(
    kind: str, scores: Tensor, layout: Layout, sizes: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The k best as lists of parts (instances, k, longest), and their scores (instances, k).

    Where there are fewer, the parts are -1 and the scores -inf.
    """
    parts, values = find(f"k_best.{kind}", scores)(scores.detach(), layout, sizes, k)
    return parts, values
