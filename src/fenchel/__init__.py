"""fenchel: probabilities with exact zeros, and everything that follows from them.

Import it as ``import fenchel as fy``.
"""

from fenchel._checks import FenchelError
from fenchel.kernels import Backends, backends, use_backend
from fenchel.maps import budget, entmax, entmax15, normmax, softmax, sparsemax

__version__ = "0.1.0"

__all__ = [
    "Backends",
    "FenchelError",
    "backends",
    "budget",
    "entmax",
    "entmax15",
    "normmax",
    "softmax",
    "sparsemax",
    "use_backend",
]
