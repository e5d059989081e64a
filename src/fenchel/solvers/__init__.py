"""Solvers that know their problem only through an oracle; a result carries its gap."""

from fenchel.solvers._sinkhorn import SinkhornSolution, sinkhorn, sinkhorn_solve
from fenchel.solvers.fista import SimplexSolution, regularized_argmax
from fenchel.solvers.sparsemap import SparseDistribution

__all__ = [
    "SimplexSolution",
    "SinkhornSolution",
    "SparseDistribution",
    "regularized_argmax",
    "sinkhorn",
    "sinkhorn_solve",
]
