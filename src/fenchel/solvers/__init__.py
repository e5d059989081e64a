"""Solvers that know their problem only through an oracle; a result carries its gap."""

from fenchel.solvers._fista import regularized_argmax
from fenchel.solvers._solution import SimplexSolution

__all__ = ["SimplexSolution", "regularized_argmax"]
