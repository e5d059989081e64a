"""Every op in plain torch: any device, any layout. The definition of correct.

A map takes floating ``x`` (float32 or float64), a parameter (a Python float, or a tensor that
broadcasts against ``x`` with size 1 along ``dim``) and ``dim``. ``-inf`` is a mask, a fully masked
row is all zeros, and a row with NaN or +inf is all NaN. Each file registers the ops it defines;
what is exported here is maths around them that no backend has a kernel for.
"""

from fenchel.kernels._table import load_backend
from fenchel.kernels.reference._groups import pooled
from fenchel.kernels.reference._lists import rows_of
from fenchel.kernels.reference._sequence import sequence_parts

__all__ = [
    "pooled",
    "rows_of",
    "sequence_parts",
]

load_backend(__name__, __path__)
