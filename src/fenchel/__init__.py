"""fenchel: probabilities with exact zeros, and everything that follows from them.

Import it as ``import fenchel as fy``.
"""

from fenchel import nn
from fenchel._checks import FenchelError
from fenchel.distributions import SparseCategorical
from fenchel.kernels import Backends, backends, use_backend
from fenchel.maps import (
    SparseRows,
    budget,
    entmax,
    entmax15,
    normmax,
    renyimax,
    softmax,
    sparse_entmax,
    sparsemax,
    sq_pnorm_max,
)

__version__ = "0.1.0"

__all__ = [
    "Backends",
    "FenchelError",
    "SparseCategorical",
    "SparseRows",
    "backends",
    "budget",
    "entmax",
    "entmax15",
    "nn",
    "normmax",
    "renyimax",
    "softmax",
    "sparse_entmax",
    "sparsemax",
    "sq_pnorm_max",
    "use_backend",
]
