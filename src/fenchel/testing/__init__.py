"""The library's own contract tests, for maps, structures and regularizers of your own."""

from fenchel.testing._failure import CheckFailed
from fenchel.testing._maps import check_map
from fenchel.testing._regularizers import check_regularizer
from fenchel.testing._structures import check_structure

__all__ = ["CheckFailed", "check_map", "check_regularizer", "check_structure"]
