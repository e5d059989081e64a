"""Maps from scores to sparse probabilities. One file per map, with its declaration."""

from fenchel.maps._budget import budget
from fenchel.maps._entmax import entmax
from fenchel.maps._entmax15 import entmax15
from fenchel.maps._fusedmax import fusedmax
from fenchel.maps._logistic_budget import logistic_budget
from fenchel.maps._normmax import normmax
from fenchel.maps._oscarmax import oscarmax
from fenchel.maps._oscarmax_approx import oscarmax_approx
from fenchel.maps._renyimax import renyimax
from fenchel.maps._softmax import softmax
from fenchel.maps._sparse_entmax import SparseRows, sparse_entmax
from fenchel.maps._sparsemax import sparsemax
from fenchel.maps._sq_pnorm_max import sq_pnorm_max

__all__ = [
    "SparseRows",
    "budget",
    "entmax",
    "entmax15",
    "fusedmax",
    "logistic_budget",
    "normmax",
    "oscarmax",
    "oscarmax_approx",
    "renyimax",
    "softmax",
    "sparse_entmax",
    "sparsemax",
    "sq_pnorm_max",
]
