"""Maps from scores to sparse probabilities. One file a map."""

from fenchel.maps._budget import budget
from fenchel.maps._entmax import entmax
from fenchel.maps._entmax15 import entmax15
from fenchel.maps._normmax import normmax
from fenchel.maps._softmax import softmax
from fenchel.maps._sparse_entmax import SparseRows, sparse_entmax
from fenchel.maps._sparsemax import sparsemax

__all__ = [
    "SparseRows",
    "budget",
    "entmax",
    "entmax15",
    "normmax",
    "softmax",
    "sparse_entmax",
    "sparsemax",
]
