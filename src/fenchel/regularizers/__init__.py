"""Convex functions Ω, each with its map, value, loss and margin. One file an Ω."""

from fenchel.regularizers._base import Regularizer
from fenchel.regularizers._fused_lasso import FusedLasso
from fenchel.regularizers._gini import Gini
from fenchel.regularizers._map import MAP
from fenchel.regularizers._marginals import Marginals
from fenchel.regularizers._norm import Norm
from fenchel.regularizers._oscar import Oscar
from fenchel.regularizers._registry import REGULARIZERS, as_regularizer
from fenchel.regularizers._renyi import Renyi
from fenchel.regularizers._scaled import Scaled
from fenchel.regularizers._shannon import Shannon
from fenchel.regularizers._smoothed_dp import SmoothedDP
from fenchel.regularizers._sparse_map import SparseMAP
from fenchel.regularizers._squared import Squared
from fenchel.regularizers._squared_norm import SquaredNorm
from fenchel.regularizers._structured import StructuredRegularizer
from fenchel.regularizers._tsallis import Tsallis
from fenchel.regularizers._zero import Zero

__all__ = [
    "MAP",
    "REGULARIZERS",
    "FusedLasso",
    "Gini",
    "Marginals",
    "Norm",
    "Oscar",
    "Regularizer",
    "Renyi",
    "Scaled",
    "Shannon",
    "SmoothedDP",
    "SparseMAP",
    "Squared",
    "SquaredNorm",
    "StructuredRegularizer",
    "Tsallis",
    "Zero",
    "as_regularizer",
]
