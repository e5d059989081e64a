"""Convex functions Ω, each with its map, value, loss and margin. One file per kind of Ω."""

from fenchel.regularizers import _entropies, _grouping, _norms
from fenchel.regularizers._base import Regularizer, Scaled
from fenchel.regularizers._entropies import *  # noqa: F403  (what a file adds is public at once)
from fenchel.regularizers._grouping import *  # noqa: F403
from fenchel.regularizers._map import MAP
from fenchel.regularizers._marginals import Marginals
from fenchel.regularizers._norms import *  # noqa: F403
from fenchel.regularizers._smoothed_dp import SmoothedDP
from fenchel.regularizers._sparse_map import SparseMAP
from fenchel.regularizers._structured import StructuredRegularizer

__all__ = [
    "MAP",
    "Marginals",
    "Regularizer",
    "Scaled",
    "SmoothedDP",
    "SparseMAP",
    "StructuredRegularizer",
]
__all__ += _entropies.__all__
__all__ += _grouping.__all__
__all__ += _norms.__all__
