"""fenchel: probabilities with exact zeros, and everything that follows from them.

Import it as ``import fenchel as fy``.
"""

import fenchel._before_torch  # noqa: F401 (first: what it does must come before torch)
from fenchel import maps, metrics, nn, regularizers, structures
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
from fenchel.maps import *  # noqa: F403  (what a new map adds is public at once)
from fenchel.regularizers import *  # noqa: F403
from fenchel.solvers import SinkhornSolution, sinkhorn, sinkhorn_solve
from fenchel.structures import *  # noqa: F403  (what a new structure adds is public at once)

__version__ = "0.1.0"

__all__ = [
    "Backends",
    "FenchelError",
    "SinkhornSolution",
    "SparseCategorical",
    "backends",
    "entmax15_loss",
    "entmax_attention",
    "entmax_loss",
    "fenchel_young_loss",
    "linear_entmax_loss",
    "linear_sparse_entmax",
    "metrics",
    "nn",
    "sinkhorn",
    "sinkhorn_solve",
    "sparse_entmax_attention",
    "sparsemax_loss",
    "use_backend",
    "vocab_parallel_entmax_loss",
]
__all__ += maps.__all__
__all__ += regularizers.__all__
__all__ += structures.__all__
