"""Solvers that know their problem only through an oracle; a result carries its gap."""

from fenchel.solvers._dual_point import DualPoint, dual_point
from fenchel.solvers._sinkhorn import SinkhornSolution, sinkhorn, sinkhorn_solve
from fenchel.solvers._sparse_map import SparseDistribution, sparse_map, sparse_map_means
from fenchel.solvers.fista import SimplexSolution, regularized_argmax

__all__ = [
    "DualPoint",
    "SimplexSolution",
    "SinkhornSolution",
    "SparseDistribution",
    "dual_point",
    "regularized_argmax",
    "sinkhorn",
    "sinkhorn_solve",
    "sparse_map",
    "sparse_map_means",
]
