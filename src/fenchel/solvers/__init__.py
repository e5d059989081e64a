"""Solvers that know their problem only through an oracle; a result carries its gap."""

from fenchel.solvers._solution import SimplexSolution
from fenchel.solvers._sparse_distribution import SparseDistribution
from fenchel.solvers._sparse_map import sparse_map, sparse_map_means
from fenchel.solvers.fista import regularized_argmax

__all__ = [
    "SimplexSolution",
    "SparseDistribution",
    "regularized_argmax",
    "sparse_map",
    "sparse_map_means",
]
