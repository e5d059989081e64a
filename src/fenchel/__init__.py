"""fenchel: probabilities with exact zeros, and everything that follows from them.

Import it as ``import fenchel as fy``.
"""

import fenchel._before_torch  # noqa: F401 (first: what it does must come before torch)
from fenchel import metrics, nn, structures
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
    vocab_parallel_entmax_loss,
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
    MAP,
    FusedLasso,
    Gini,
    Marginals,
    Norm,
    Oscar,
    Regularizer,
    Renyi,
    Scaled,
    Shannon,
    SmoothedDP,
    SparseMAP,
    Squared,
    SquaredNorm,
    StructuredRegularizer,
    Tsallis,
    Zero,
)
from fenchel.solvers import SinkhornSolution, sinkhorn, sinkhorn_solve
from fenchel.structures import *  # noqa: F403  (what a new structure adds is public at once)

__version__ = "0.1.0"

__all__ = [
    "MAP",
    "Backends",
    "FenchelError",
    "FusedLasso",
    "Gini",
    "Marginals",
    "Norm",
    "Oscar",
    "Regularizer",
    "Renyi",
    "Scaled",
    "Shannon",
    "SinkhornSolution",
    "SmoothedDP",
    "SparseCategorical",
    "SparseMAP",
    "SparseRows",
    "Squared",
    "SquaredNorm",
    "StructuredRegularizer",
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
    "sinkhorn",
    "sinkhorn_solve",
    "softmax",
    "sparse_entmax",
    "sparse_entmax_attention",
    "sparsemax",
    "sparsemax_loss",
    "sq_pnorm_max",
    "use_backend",
    "vocab_parallel_entmax_loss",
]
__all__ += structures.__all__
