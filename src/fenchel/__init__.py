"""fenchel: probabilities with exact zeros, and everything that follows from them.

Import it as ``import fenchel as fy``.
"""

from fenchel import metrics, nn
from fenchel._checks import FenchelError
from fenchel.attention import entmax_attention, sparse_entmax_attention
from fenchel.distributions import SparseCategorical
from fenchel.kernels import Backends, backends, use_backend
from fenchel.losses import (
    entmax15_loss,
    entmax_loss,
    fenchel_young_loss,
    linear_entmax_loss,
    linear_sparse_entmax,
    sparsemax_loss,
)
from fenchel.maps import (
    SparseRows,
    budget,
    entmax,
    entmax15,
    fusedmax,
    normmax,
    oscarmax,
    oscarmax_approx,
    renyimax,
    softmax,
    sparse_entmax,
    sparsemax,
    sq_pnorm_max,
)
from fenchel.regularizers import (
    FusedLasso,
    Gini,
    Norm,
    Oscar,
    Regularizer,
    Renyi,
    Scaled,
    Shannon,
    Squared,
    SquaredNorm,
    Tsallis,
    Zero,
)

__version__ = "0.1.0"

__all__ = [
    "Backends",
    "FenchelError",
    "FusedLasso",
    "Gini",
    "Norm",
    "Oscar",
    "Regularizer",
    "Renyi",
    "Scaled",
    "Shannon",
    "SparseCategorical",
    "SparseRows",
    "Squared",
    "SquaredNorm",
    "Tsallis",
    "Zero",
    "backends",
    "budget",
    "entmax",
    "entmax15",
    "entmax15_loss",
    "entmax_attention",
    "entmax_loss",
    "fenchel_young_loss",
    "fusedmax",
    "linear_entmax_loss",
    "linear_sparse_entmax",
    "metrics",
    "nn",
    "normmax",
    "oscarmax",
    "oscarmax_approx",
    "renyimax",
    "softmax",
    "sparse_entmax",
    "sparse_entmax_attention",
    "sparsemax",
    "sparsemax_loss",
    "sq_pnorm_max",
    "use_backend",
]
