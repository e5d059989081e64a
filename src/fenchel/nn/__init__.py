"""The maps as modules. One file a module, of the name of its map."""

from fenchel.nn._budget import Budget
from fenchel.nn._entmax import Entmax
from fenchel.nn._entmax15 import Entmax15
from fenchel.nn._normmax import Normmax
from fenchel.nn._renyimax import Renyimax
from fenchel.nn._softmax import Softmax
from fenchel.nn._sparsemax import Sparsemax
from fenchel.nn._sq_pnorm_max import SqPnormMax

__all__ = [
    "Budget",
    "Entmax",
    "Entmax15",
    "Normmax",
    "Renyimax",
    "Softmax",
    "Sparsemax",
    "SqPnormMax",
]
